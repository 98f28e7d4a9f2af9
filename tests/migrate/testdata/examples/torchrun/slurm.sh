#!/bin/bash
# A batch script in the form of torchtune's recipes/full_finetune_multinode.slurm.
#SBATCH --nodes=2
module load cuda
srun python -m torch.distributed.run --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint head:29500 full_finetune_distributed.py --config llama3_3/70B_full_multinode
