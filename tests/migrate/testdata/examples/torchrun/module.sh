# The flags of axolotl's docs/multi-node.qmd.
torchrun --nnodes 2 --nproc_per_node 8 --rdzv_id 17 --rdzv_backend c10d --rdzv_endpoint head:29400 -m axolotl.cli.train config.yaml
