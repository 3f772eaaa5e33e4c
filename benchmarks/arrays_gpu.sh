#!/usr/bin/env bash
# bash benchmarks/arrays_gpu.sh [tune|final]: images.py and series.py together on one GPU, from the root of the repository.
# tune: seed 1, several settings of the forecaster and of the ViT, to choose from by validation. final: the recipes, 3 seeds.
# DATA: folder with ett/ and fashion-mnist/ (default data). OUT: folder of the JSON files and the log (default runs/arrays).
# LIMIT: seconds (default 350). SMALL=1: a few steps of each, also on a CPU.
set -u
ROOT=$PWD; DATA=${DATA:-data}; OUT=${OUT:-runs/arrays}; LIMIT=${LIMIT:-350}; SMALL=${SMALL:-0}; PART=${1:-tune}
[ -f regard/version.py ] || { echo "run this from the root of the repository"; exit 2; }
export PYTHONPATH=$ROOT${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 OMP_NUM_THREADS=${THREADS:-2} MPLBACKEND=Agg
W=$(mktemp -d); mkdir -p "$OUT"; LOG=$OUT/log.txt; QUICK=(); [ "$SMALL" = 1 ] && QUICK=(--quick)
say() { echo "[${SECONDS}s] $*" | tee -a "$LOG"; }
left() { local s=$((LIMIT - SECONDS)); echo $((s > 5 ? s : 5)); }
# Several trainings at a time share the GPU better through NVIDIA's multi-process service, where there is one.
if command -v nvidia-cuda-mps-control >/dev/null && [ "${MPS:-1}" = 1 ]; then
  export CUDA_MPS_PIPE_DIRECTORY=$W/mps CUDA_MPS_LOG_DIRECTORY=$W/mps-log; mkdir -p "$W/mps" "$W/mps-log"
  nvidia-cuda-mps-control -d >/dev/null 2>&1
  if timeout 40 python -c 'import torch; torch.ones(8, device="cuda").sum().item()' >/dev/null 2>&1; then say "MPS on"
  else echo quit | timeout 10 nvidia-cuda-mps-control >/dev/null 2>&1; unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY; say "MPS off"; fi
fi
# series NAME MINUTES JOBS OPTIONS…: one call of benchmarks/series.py, JSON in $OUT/NAME.json
series() { local name=$1 minutes=$2 jobs=$3; shift 3
  timeout -k 10 "$(left)" python benchmarks/series.py --data "$DATA" --jobs "$jobs" --minutes "$minutes" "${QUICK[@]}" --out "$OUT/$name.json" "$@" >"$W/$name.txt" 2>&1
  say "$name: rc $?"; { echo "== $name"; cut -c1-400 "$W/$name.txt"; } >>"$LOG"; }
images() { local name=$1; shift
  timeout -k 10 "$(left)" python benchmarks/images.py --data "$DATA" "${QUICK[@]}" --out "$OUT/$name.json" "$@" >"$W/$name.txt" 2>&1
  say "$name: rc $?"; { echo "== $name"; cut -c1-400 "$W/$name.txt"; } >>"$LOG"; }
long=(model.lookback=512 training.batch_tokens=57344)
if [ "$PART" = tune ]; then
  images vit-4 --systems regard & images peers --systems cnn transformers &
  images vit-2 --systems regard --set model.patch=2 training.batch_tokens=50432 data.shift=2 &
  series patch-336 3 2 --models forecaster dlinear &
  series patch-512 3 2 --models forecaster --set "${long[@]}" &
  series patch-512-slow 3 2 --models forecaster --set "${long[@]}" training.lr=2e-4 training.steps=2000 &
  series patch-512-wide 3 2 --models forecaster --set "${long[@]}" model.dim=64 model.dropout=0.4 model.head_dropout=0.5 training.lr=3e-4 &
  wait
else
  images fashion-mnist --seeds 1 & images fashion-mnist-2 --seeds 2 & images fashion-mnist-3 --seeds 3 &
  series etth1 4.5 3 --datasets etth1 --seeds 1 2 3 --models forecaster dlinear &
  series etth2 4.5 3 --datasets etth2 --seeds 1 2 3 --models forecaster dlinear &
  wait
  series variants 4.5 4 --horizons 96 --models fourier "random features"
fi
[ -n "${CUDA_MPS_PIPE_DIRECTORY:-}" ] && echo quit | timeout 10 nvidia-cuda-mps-control >/dev/null 2>&1
say "done: $(ls "$OUT" | tr '\n' ' ')"
