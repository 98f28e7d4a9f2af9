# The flags of LLaMA-Factory's src/llamafactory/launcher.py for fixed nodes.
NNODES=2
GPUS=4
export NCCL_DEBUG=INFO
torchrun --nnodes $NNODES --node_rank 0 --nproc_per_node ${GPUS} --master_addr 10.0.0.1 --master_port 29500 \
  src/train.py "qwen3 full.yaml"
