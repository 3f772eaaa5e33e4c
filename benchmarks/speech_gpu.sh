#!/usr/bin/env bash
# bash benchmarks/speech_gpu.sh: speech.py on one GPU, several trainings at a time, from the root of the repository.
# DATA: folder with fsdd/ (default data). OUT: folder of the JSON file and the log (default runs/speech).
# JOBS: trainings at a time (default 18). LIMIT: seconds of one (default 160). SECONDS_IN_ALL: of all (default 195).
# SMALL=1: a few steps of small models, also on a CPU.
set -u
ROOT=$PWD; DATA=${DATA:-data}; OUT=${OUT:-runs/speech}; JOBS=${JOBS:-18}; LIMIT=${LIMIT:-160}
ALL=${SECONDS_IN_ALL:-195}; STEPS=${STEPS:-3000}; SMALL=${SMALL:-0}
[ -f regard/version.py ] || { echo "run this from the root of the repository"; exit 2; }
export PYTHONPATH=$ROOT${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1 MPLBACKEND=Agg
W=$(mktemp -d); mkdir -p "$OUT"; QUICK=(--steps "$STEPS"); [ "$SMALL" = 1 ] && QUICK=(--quick)
say() { echo "[${SECONDS}s] $*" | tee -a "$OUT/log.txt"; }
# Several trainings at a time share the GPU better through NVIDIA's multi-process service, where there is one.
if command -v nvidia-cuda-mps-control >/dev/null && [ "${MPS:-1}" = 1 ]; then
  export CUDA_MPS_PIPE_DIRECTORY=$W/mps CUDA_MPS_LOG_DIRECTORY=$W/mps-log; mkdir -p "$W/mps" "$W/mps-log"
  nvidia-cuda-mps-control -d >/dev/null 2>&1
  if timeout 40 python -c 'import torch; torch.ones(8, device="cuda").sum().item()' >/dev/null 2>&1; then say "MPS on"
  else echo quit | timeout 10 nvidia-cuda-mps-control >/dev/null 2>&1; unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY; say "MPS off"; fi
fi
timeout -k 10 $((ALL + 15)) python benchmarks/speech.py --data "$DATA" --seeds 1 2 3 --speakers --jobs "$JOBS" --limit "$LIMIT" \
  --seconds "$((ALL - SECONDS))" "${QUICK[@]}" --out "$OUT/speech.json" "$@" >>"$OUT/log.txt" 2>&1
say "rc $?"; grep -v '^{' "$OUT/log.txt" | cut -c1-300
[ -n "${CUDA_MPS_PIPE_DIRECTORY:-}" ] && echo quit | timeout 10 nvidia-cuda-mps-control >/dev/null 2>&1
say "done"
