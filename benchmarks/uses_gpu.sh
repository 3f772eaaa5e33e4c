#!/usr/bin/env bash
# bash benchmarks/uses_gpu.sh [tune|final]: stories.py, images.py and series.py side by side on one GPU, from the root of
# the repository. tune: several settings with seed 1, judged by validation. final: the recipes and their peers, 3 seeds.
# DATA: folder with ett/ and fashion-mnist/ (default data). OUT: folder of uses-PART.jsonl and uses-PART.txt (default runs).
# LIMIT: seconds (default 280). ONLY: extended regular expression of the jobs' names. SMALL=1: a few steps, also on a CPU.
set -u
ROOT=$PWD; DATA=${DATA:-data}; OUT=${OUT:-runs}; LIMIT=${LIMIT:-280}; SMALL=${SMALL:-0}; PART=${1:-tune}; ONLY=${ONLY:-.}
[ -f regard/version.py ] || { echo "run this from the root of the repository"; exit 2; }
export PYTHONPATH=$ROOT${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 OMP_NUM_THREADS=${THREADS:-1} MPLBACKEND=Agg
W=$(mktemp -d); mkdir -p "$OUT"; LINES=$OUT/uses-$PART.jsonl; LOG=$OUT/uses-$PART.txt; QUICK=(); TINY=(); DEVICE=cuda; RUNNING=()
if [ "$SMALL" = 1 ]; then
  QUICK=(--quick); DEVICE=cpu
  for setting in data.demo=300 data.validation=40 training.steps=4 training.validate_every=4 training.warmup=1 \
    model.layers=1 model.decoder_layers=1 model.dim=32 model.heads=2 model.hidden=32 decoding.sentences=20; do TINY+=(--set "$setting"); done
  TINY+=(--samples 20 --pointed 10)
fi
# Several trainings at a time share the GPU better through NVIDIA's multi-process service, where there is one.
service=
if [ "$SMALL" = 0 ] && [ -z "${CUDA_MPS_PIPE_DIRECTORY:-}" ] && command -v nvidia-cuda-mps-control >/dev/null; then
  export CUDA_MPS_PIPE_DIRECTORY=$W/mps CUDA_MPS_LOG_DIRECTORY=$W/mps-log; mkdir -p "$W/mps" "$W/mps-log"
  nvidia-cuda-mps-control -d >/dev/null 2>&1; service=yes
  if ! timeout 40 python -c 'import torch; torch.ones(8, device="cuda").sum().item()' >/dev/null 2>&1; then
    echo quit | timeout 10 nvidia-cuda-mps-control >/dev/null 2>&1; service=no; unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
  fi
fi
echo "[${SECONDS}s] multi-process service: ${service:-as it was}" | tee "$W/service.log"
DATA=$(cd "$DATA" && pwd)
if compgen -G "$DATA/fashion-mnist/*.xz" >/dev/null; then  # images packed smaller: unpacked beside links to the rest
  mkdir -p "$W/data/fashion-mnist"; ln -s "$DATA/ett" "$W/data/ett"; cp "$DATA"/fashion-mnist/*.gz "$W/data/fashion-mnist/"
  for file in "$DATA"/fashion-mnist/*.xz; do
    python -c 'import gzip, lzma, sys; open(sys.argv[2], "wb").write(gzip.compress(lzma.open(sys.argv[1]).read(), 1))' \
      "$file" "$W/data/fashion-mnist/$(basename "${file%.xz}").gz"
  done
  DATA=$W/data
fi
bundle() { { cat "$W"/*.jsonl; for file in "$W"/*.json; do tr -d '\n' <"$file"; echo; done; } >"$LINES.new" 2>/dev/null; mv "$LINES.new" "$LINES"
  for file in "$W"/*.log; do echo "== $(basename "$file")"; grep -v '^{"' "$file" | tail -n 60 | cut -c1-240; done >"$LOG.new" 2>/dev/null; mv "$LOG.new" "$LOG"; }
# job NAME COMMAND…: in the background, stopped when the time is over
job() { local name=$1; shift; [[ $name =~ $ONLY ]] || return 0
  ( timeout -k 5 $((LIMIT - SECONDS > 5 ? LIMIT - SECONDS : 5)) "$@" >"$W/$name.log" 2>&1; echo "[${SECONDS}s] $name: rc $?" | tee -a "$W/$name.log" ) &
  RUNNING+=($!); [ "$SMALL" = 1 ] && wait $!; return 0; }
# stories NAME TASK OPTIONS…; words with = are settings
stories() { local name=$1 task=$2 word; shift 2; local words=()
  for word in "$@"; do case $word in *=*) words+=(--set "$word");; *) words+=("$word");; esac; done
  job "$name" python benchmarks/stories.py --task "$task" --name "$name" --device $DEVICE --verbose --out "$W/$name.jsonl" "${words[@]}" "${TINY[@]}"; }
series() { local name=$1; shift; job "$name" python benchmarks/series.py --data "$DATA" "${QUICK[@]}" --out "$W/$name.json" "$@"; }
images() { local name=$1; shift; job "$name" python benchmarks/images.py --data "$DATA" "${QUICK[@]}" --out "$W/$name.json" "$@"; }
( while sleep 15; do bundle; done ) & keeper=$!
if [ "$PART" = tune ]; then
  tuned=(--seed 1 --system pointer-generator --parts validation)
  wide=(data.demo=200000 training.batch_tokens=8192 training.validate_every=500 training.warmup=300 decoding.sentences=200
    model.layers=4 model.decoder_layers=2 model.dim=128 model.heads=8 model.hidden=512 training.lr=1e-3 training.steps=6000)
  stories answers-128 answers "${tuned[@]}" "${wide[@]}"
  stories answers-128-captured answers "${tuned[@]}" "${wide[@]}" training.capture=true training.kernels=auto training.precision=bf16
  stories answers-128-fast answers "${tuned[@]}" "${wide[@]}" training.lr=2e-3
  stories answers-128-shallow answers "${tuned[@]}" "${wide[@]}" model.layers=3 model.decoder_layers=1
  stories answers-64 answers "${tuned[@]}" "${wide[@]}" model.dim=64 model.heads=4 model.hidden=256 training.lr=2e-3
  stories answers-256 answers "${tuned[@]}" "${wide[@]}" model.dim=256 model.hidden=1024 training.lr=5e-4 training.steps=5000
  stories summaries-recipe summaries "${tuned[@]}"
  stories summaries-128 summaries "${tuned[@]}" data.demo=50000 training.batch_tokens=8192 training.steps=3000 training.lr=1e-3 \
    model.layers=3 model.decoder_layers=2 model.dim=128 model.heads=8 model.hidden=512
  images vit-4 --systems regard --set training.steps=3500 training.warmup=350 training.validate_every=350
  images vit-2 --systems regard --set model.patch=2 training.batch_tokens=50432 training.steps=2500 training.warmup=250 training.validate_every=250
  images peers --systems cnn transformers --set training.steps=3500 training.warmup=350 training.validate_every=350
  patch=(--models forecaster --minutes 3.3 --jobs 1)
  long=(model.lookback=512 training.batch_tokens=57344)
  series patch-336 "${patch[@]}"
  series patch-512 "${patch[@]}" --set "${long[@]}" training.lr=3e-4
  series patch-512-ema "${patch[@]}" --set "${long[@]}" training.lr=5e-4 training.ema=0.99 model.head_dropout=0.5 model.dropout=0.5
  series patch-720-day "${patch[@]}" --set model.lookback=720 model.patch=24 model.stride=24 training.batch_tokens=27776 training.lr=5e-4
else
  judged=(--parts validation test combinations longer --system pointer-generator)
  large=(data.demo=300000 training.batch_tokens=12288 training.validate_every=1000 training.warmup=300 training.pointing=1
    model.layers=4 model.decoder_layers=2 model.heads=8 training.steps=5500)
  for seed in 1 2 3; do
    stories answers-256-$seed answers "${large[@]}" model.dim=256 model.hidden=1024 training.lr=5e-4 "${judged[@]}" --seed $seed
    stories answers-128-$seed answers "${large[@]}" model.dim=128 model.hidden=512 training.lr=1e-3 "${judged[@]}" --seed $seed
  done
  stories answers-transformer answers "${large[@]}" model.dim=256 model.hidden=1024 training.lr=5e-4 "${judged[@]}" --seed 1 --system transformer
  for rate in 1 0.33; do
    stories answers-t5-$rate answers "${large[@]}" model.dim=256 model.hidden=1024 training.lr=5e-4 "${judged[@]}" --seed 1 --system t5 --rates $rate
  done
  large=(data.demo=50000 training.batch_tokens=8192 training.steps=2000 training.lr=1e-3
    model.layers=3 model.decoder_layers=2 model.dim=128 model.heads=8 model.hidden=512)
  for seed in 1 2 3; do stories summaries-$seed summaries "${large[@]}" "${judged[@]}" --seed $seed; done
  stories summaries-transformer summaries "${large[@]}" "${judged[@]}" --seed 1 --system transformer
  for rate in 1 0.33; do stories summaries-t5-$rate summaries "${large[@]}" "${judged[@]}" --seed 1 --system t5 --rates $rate; done
  length=(training.steps=3500 training.warmup=350 training.validate_every=350)
  for seed in 1 2 3; do
    images vit-stem-4-$seed --seeds $seed --systems regard cnn transformers --set "${length[@]}" model.stem=convolutions
    images vit-stem-2-$seed --seeds $seed --systems regard --set "${length[@]}" model.stem=convolutions model.patch=2 model.dim=128 model.heads=4 \
      model.hidden=512 training.batch_tokens=50432
  done
  long=(model.lookback=512 training.batch_tokens=57344)
  short=(training.lr=5e-4 training.steps=500 training.warmup=25 training.validate_every=50 model.head_dropout=0)
  slow=(training.lr=1e-4 training.steps=1500 training.warmup=25 training.validate_every=100 model.head_dropout=0)
  series patch-336-short --seeds 1 2 3 --models forecaster --jobs 2 --set "${short[@]}"
  series patch-512-short --seeds 1 2 3 --models forecaster --jobs 2 --set "${short[@]}" "${long[@]}"
  series patch-336-slow --seeds 1 2 3 --models forecaster --jobs 3 --set "${slow[@]}"
  series patch-512-slow --seeds 1 2 3 --models forecaster --jobs 3 --set "${slow[@]}" "${long[@]}"
  series dlinear --seeds 1 2 3 --models dlinear --jobs 2
fi
[ ${#RUNNING[@]} -gt 0 ] && wait "${RUNNING[@]}"; kill "$keeper" 2>/dev/null; bundle
[ "$service" = yes ] && echo quit | timeout 10 nvidia-cuda-mps-control >/dev/null 2>&1
echo "[${SECONDS}s] done: $(wc -l <"$LINES") results in $LINES"; rm -rf "$W"
