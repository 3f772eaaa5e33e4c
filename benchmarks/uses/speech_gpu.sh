#!/usr/bin/env bash
# bash benchmarks/uses/speech_gpu.sh [tune|final|all]: speech.py on one GPU, several trainings at a time, from the root.
# tune: variants of the recipe, compared on a part of the training files. final: all systems, 3 seeds, and each speaker
# held out, with the best variant and as many steps as fit if $TUNED is the JSON of a comparison. all: one after the other.
# DATA: folder with fsdd/ (default data). OUT: folder of the JSON files and the log (default runs/speech).
# STEPS_MOST: steps of a training of the final part, at most (default: those of the recipe).
# SYSTEMS, SPEAKERS=0: only these systems, and no speaker held out, in the final part.
# JOBS: trainings at a time (default 14). SMALL=1: a few steps of small models, also on a CPU.
# TUNE_SECONDS (100) and FINAL_SECONDS (235): of all trainings of a part; LIMIT (95): of one training of the final part.
set -u
ROOT=$PWD; DATA=${DATA:-data}; OUT=${OUT:-runs/speech}; JOBS=${JOBS:-14}; LIMIT=${LIMIT:-95}; PART=${1:-all}
TUNE_SECONDS=${TUNE_SECONDS:-100}; FINAL_SECONDS=${FINAL_SECONDS:-235}; TUNE_STEPS=${TUNE_STEPS:-1200}; SMALL=${SMALL:-0}
[ -f regard/version.py ] || { echo "run this from the root of the repository"; exit 2; }
export PYTHONPATH=$ROOT${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1 MPLBACKEND=Agg
W=$(mktemp -d); mkdir -p "$OUT"; TUNED=${TUNED:-$OUT/speech-tune.json}; LOG=$OUT/log.txt
QUICK=(); STEPS=(--steps "$TUNE_STEPS"); [ "$SMALL" = 1 ] && { QUICK=(--quick); STEPS=(); }
say() { echo "[${SECONDS}s] $*" | tee -a "$LOG"; }
# Several trainings at a time share the GPU better through NVIDIA's multi-process service, where there is one.
if command -v nvidia-cuda-mps-control >/dev/null && [ "${MPS:-1}" = 1 ]; then
  export CUDA_MPS_PIPE_DIRECTORY=$W/mps CUDA_MPS_LOG_DIRECTORY=$W/mps-log; mkdir -p "$W/mps" "$W/mps-log"
  nvidia-cuda-mps-control -d >/dev/null 2>&1
  if timeout 40 python -c 'import torch; torch.ones(8, device="cuda").sum().item()' >/dev/null 2>&1; then say "MPS on"
  else echo quit | timeout 10 nvidia-cuda-mps-control >/dev/null 2>&1; unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY; say "MPS off"; fi
fi
# speech NAME SECONDS OPTIONS…: one call of benchmarks/uses/speech.py; the JSON is written after each training.
speech() { local name=$1 seconds=$2; shift 2
  timeout -k 10 $((seconds + 25)) python benchmarks/uses/speech.py --data "$DATA" --jobs "$JOBS" --seconds "$seconds" "${QUICK[@]}" \
    --out "$OUT/$name.json" "$@" >"$W/$name.txt" 2>&1
  say "$name: rc $?"; grep -v '^{' "$W/$name.txt" | cut -c1-300 | tee -a "$LOG"; cp "$W/$name.txt" "$OUT/$name.txt"; }
if [ "$PART" != final ]; then speech speech-tune "$TUNE_SECONDS" --tune --limit "$TUNE_SECONDS" "${STEPS[@]}"; fi
if [ "$PART" != tune ]; then
  WHICH=(); [ "${SPEAKERS:-1}" = 1 ] && WHICH+=(--speakers); [ -n "${SYSTEMS:-}" ] && WHICH+=(--systems)
  [ -n "${SYSTEMS:-}" ] && IFS=, read -ra NAMES <<<"$SYSTEMS" && WHICH+=("${NAMES[@]}")
  speech speech "$FINAL_SECONDS" --seeds 1 2 3 "${WHICH[@]}" --limit "$LIMIT" --choose "$TUNED" --fit "$TUNED" ${STEPS_MOST:+--steps $STEPS_MOST} ${SET:+--set $SET}
fi
[ -n "${CUDA_MPS_PIPE_DIRECTORY:-}" ] && echo quit | timeout 10 nvidia-cuda-mps-control >/dev/null 2>&1
say "done"
