#!/usr/bin/env bash
# bash benchmarks/uses/uses_gpu.sh [tune|stories|pictures]: many trainings side by side on one GPU, from the root of the repository.
# tune: several settings with seed 1, judged by validation. stories: stories.py and series.py, three seeds of each and the
# peers. pictures: images.py and captions.py, likewise.
# DATA: folder with ett/ and fashion-mnist/ (default data). OUT: folder of uses-PART.jsonl and uses-PART.txt (default runs).
# LIMIT: seconds (default 520). JOBS: trainings at a time (default 14), the next one starts when one ends. ONLY, EXCEPT:
# extended regular expressions of the jobs' names. SMALL=1: a few steps of each, one after another, also on a CPU.
set -u
ROOT=$PWD; DATA=${DATA:-data}; OUT=${OUT:-runs}; LIMIT=${LIMIT:-520}; SMALL=${SMALL:-0}; PART=${1:-tune}
JOBS=${JOBS:-14}; ONLY=${ONLY:-.}; EXCEPT=${EXCEPT:-none}
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
  mkdir -p "$W/data/fashion-mnist"; [ -d "$DATA/ett" ] && ln -s "$DATA/ett" "$W/data/ett"; cp "$DATA"/fashion-mnist/*.gz "$W/data/fashion-mnist/"
  for file in "$DATA"/fashion-mnist/*.xz; do
    python -c 'import gzip, lzma, sys; open(sys.argv[2], "wb").write(gzip.compress(lzma.open(sys.argv[1]).read(), 1))' \
      "$file" "$W/data/fashion-mnist/$(basename "${file%.xz}").gz"
  done
  DATA=$W/data
fi
bundle() { { cat "$W"/*.jsonl; for file in "$W"/*.json; do tr -d '\n' <"$file"; echo; done; } >"$LINES.new" 2>/dev/null; mv "$LINES.new" "$LINES"
  for file in "$W"/*.log; do echo "== $(basename "$file")"; grep -v '^{"' "$file" | tail -n 60 | cut -c1-240; done >"$LOG.new" 2>/dev/null; mv "$LOG.new" "$LOG"; }
# job NAME COMMAND…: in the background as soon as fewer than JOBS run, stopped when the time is over
job() { local name=$1; shift; [[ $name =~ $ONLY && ! $name =~ $EXCEPT ]] || return 0
  while [ "$(jobs -rp | wc -l)" -gt "$JOBS" ]; do sleep 0.5; done  # one more than JOBS: the keeper below
  if [ $((LIMIT - SECONDS)) -lt 60 ]; then echo "[${SECONDS}s] $name: not started, no time left" | tee "$W/$name.log"; return 0; fi
  ( timeout -k 5 $((LIMIT - SECONDS)) "$@" >"$W/$name.log" 2>&1; echo "[${SECONDS}s] $name: rc $?" | tee -a "$W/$name.log" ) &
  RUNNING+=($!); [ "$SMALL" = 1 ] && wait $!; return 0; }
# stories NAME TASK OPTIONS…; words with = are settings
stories() { local name=$1 task=$2 word; shift 2; local words=()
  for word in "$@"; do case $word in *=*) words+=(--set "$word");; *) words+=("$word");; esac; done
  job "$name" python benchmarks/uses/stories.py --task "$task" --name "$name" --device $DEVICE --verbose --out "$W/$name.jsonl" "${words[@]}" "${TINY[@]}"; }
series() { local name=$1; shift; job "$name" python benchmarks/uses/series.py --data "$DATA" "${QUICK[@]}" --out "$W/$name.json" "$@"; }
images() { local name=$1; shift; job "$name" python benchmarks/uses/images.py --data "$DATA" "${QUICK[@]}" --out "$W/$name.json" "$@"; }
# captions NAME OPTIONS…: once more in plain PyTorch, if the first try fails within 90 s
captions() { local name=$1; shift; job "$name" bash -c 'SECONDS=0; "$@" && exit; [ $SECONDS -lt 90 ] || exit 1; echo "again, in plain PyTorch"
  exec "$@" --plain' captions python benchmarks/uses/captions.py --verbose --data "$DATA" "${QUICK[@]}" --out "$W/$name.json" "$@"; }
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
elif [ "$PART" = stories ]; then  # first what the table needs; then the peers and other settings, as trainings end
  judged=(--parts test combinations longer --system pointer-generator)
  answers=(data.demo=200000 training.batch_tokens=12288 training.validate_every=1000 training.warmup=300 training.pointing=1
    model.layers=4 model.decoder_layers=2 model.heads=8 training.steps=8000 model.dim=256 model.hidden=1024 training.lr=5e-4)
  summaries=(data.demo=50000 training.batch_tokens=8192 training.steps=2000 training.lr=1e-3
    model.layers=3 model.decoder_layers=2 model.dim=128 model.heads=8 model.hidden=512)
  slow=(training.lr=1e-4 training.steps=1500 training.warmup=25 training.validate_every=100 model.head_dropout=0)
  short=(training.lr=5e-4 training.steps=500 training.warmup=25 training.validate_every=50 model.head_dropout=0)
  long=(model.lookback=512 training.batch_tokens=57344)
  for seed in 1 2 3; do stories answers-$seed answers "${answers[@]}" "${judged[@]}" --seed $seed; done
  for data in etth1 etth2; do
    series patch-336-slow-$data --datasets $data --seeds 1 2 3 --models forecaster --set "${slow[@]}"
    series patch-512-slow-$data --datasets $data --seeds 1 2 3 --models forecaster --set "${slow[@]}" "${long[@]}"
  done
  for seed in 1 2 3; do stories summaries-$seed summaries "${summaries[@]}" "${judged[@]}" --seed $seed; done
  stories answers-transformer answers "${answers[@]}" "${judged[@]}" --seed 1 --system transformer
  for rate in 1 0.33; do stories answers-t5-$rate answers "${answers[@]}" "${judged[@]}" --seed 1 --system t5 --rates $rate; done
  series dlinear --seeds 1 2 3 --models dlinear
  stories summaries-transformer summaries "${summaries[@]}" "${judged[@]}" --seed 1 --system transformer
  for rate in 1 0.33; do stories summaries-t5-$rate summaries "${summaries[@]}" "${judged[@]}" --seed 1 --system t5 --rates $rate; done
  series patch-336-short --seeds 1 2 3 --models forecaster --set "${short[@]}"
  series patch-512-short --seeds 1 2 3 --models forecaster --set "${short[@]}" "${long[@]}"
elif [ "$PART" = pictures ]; then
  length=(training.steps=5000 training.warmup=500 training.validate_every=500)
  JOBS=$((JOBS < 8 ? JOBS : 8))  # these keep the GPU busy: more at a time would only end later, all together
  for seed in 1 2 3; do
    captions captions-images-$seed --tasks images --systems captioner --seeds $seed
    captions captions-images-rnn-$seed --tasks images --systems rnn-captioner --seeds $seed
    captions captions-video-$seed --tasks video --systems captioner --seeds $seed
    captions captions-video-rnn-$seed --tasks video --systems rnn-captioner --seeds $seed
    images vit-$seed --seeds $seed --systems regard --set "${length[@]}" model.stem=convolutions
    images peers-$seed --seeds $seed --systems cnn transformers --set "${length[@]}"
  done
  captions captions-images-peer --tasks images --systems peer --seeds 1
  captions captions-video-peer --tasks video --systems peer --seeds 1
  captions captions-images-patches --tasks images --systems captioner --seeds 1 --set model.stem=patches
  images vit-patches-1 --seeds 1 --systems regard --set "${length[@]}"
else
  echo "$PART is none of tune, stories and pictures"
fi
[ ${#RUNNING[@]} -gt 0 ] && wait "${RUNNING[@]}"; kill "$keeper" 2>/dev/null; bundle
[ "$service" = yes ] && echo quit | timeout 10 nvidia-cuda-mps-control >/dev/null 2>&1
echo "[${SECONDS}s] done: $(wc -l <"$LINES") results in $LINES"; rm -rf "$W"
