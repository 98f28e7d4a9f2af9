# The flags of TRL's docs/source/quickstart.md.
trl sft --model_name_or_path Qwen/Qwen2.5-0.5B --dataset_name trl-lib/Capybara
