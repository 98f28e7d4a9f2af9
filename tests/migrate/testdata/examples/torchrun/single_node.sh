# A node with four ranks, as in PyTorch's docs/source/elastic/run.rst.
torchrun --standalone --nnodes=1 --nproc-per-node=4 train.py --epochs 3
