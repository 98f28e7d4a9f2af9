# The flags of the training with LoRA in TRL's trl/scripts/sft.py.
trl sft --dataset_name trl-lib/Capybara --eos_token '<|im_end|>' --eval_steps 100 --eval_strategy steps \
  --gradient_accumulation_steps 8 --learning_rate 2.0e-4 --lora_alpha 16 --lora_r 32 --model_name_or_path Qwen/Qwen2-0.5B \
  --num_train_epochs 1 --output_dir Qwen2-0.5B-SFT --packing --per_device_train_batch_size 2 --push_to_hub --use_peft
