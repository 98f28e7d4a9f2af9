# The flags of LLaMA-Factory's src/llamafactory/launcher.py for an elastic job.
torchrun --nnodes 2 --nproc-per-node 8 --rdzv-id tuning --rdzv-backend c10d --rdzv-endpoint node1:29500 \
  --max-restarts 3 src/train.py qwen3_full_sft.yaml
