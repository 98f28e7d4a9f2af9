#include "trainer/inputs/input_agreement.h"

#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <xxhash.h>

#include "trainer/model/adapter_form.h"

namespace muster {
namespace {

enum Input { kModel, kRows, kSettings, kWeights, kInputCount };

// The bits of settings, one after the other.
class SettingsHash {
 public:
  template <typename Setting>
  void Add(Setting setting) {
    static_assert(std::is_arithmetic_v<Setting> || std::is_enum_v<Setting>);
    std::uint64_t word = 0;
    std::memcpy(&word, &setting, sizeof setting);
    words_.push_back(word);
  }
  void Add(const std::string& text) { words_.push_back(XXH3_64bits(text.data(), text.size())); }
  std::uint64_t value() const {
    return XXH3_64bits(words_.data(), words_.size() * sizeof(std::uint64_t));
  }

 private:
  std::vector<std::uint64_t> words_;
};

TrainStatus Differs(Input input, const JobSpec& spec, const TrainInputs& inputs, int rank) {
  const std::string here = "rank " + std::to_string(rank);
  if (input == kModel) {
    return {FailureKind::kModel,
            InvalidArgument("config.json is not the same on all ranks: " + here + " has read " +
                            inputs.model_dir + "/config.json; copy one model to every node")};
  }
  if (input == kRows) {
    return {FailureKind::kData,
            InvalidArgument("the training rows are not the same on all ranks: " + here +
                            " has read " + std::to_string(inputs.dataset->size()) + " rows with " +
                            std::to_string(inputs.dataset->stats().tokens) + " tokens from " +
                            ResolvePath(spec, NameOfFiles(spec.train->data.train)) +
                            "; copy one file, and one tokenizer.json, to every node")};
  }
  if (input == kWeights) {
    return {FailureKind::kModel,
            InvalidArgument("the model's weights are not the same on all ranks, and a job with "
                            "adapters reads them on each: " +
                            here + " has those of " + inputs.model_dir +
                            "; copy one model to every node")};
  }
  return {FailureKind::kConfig, InvalidArgument("the train block of the job file is not the same "
                                                "on all ranks; copy one job file to every node")};
}

// The fingerprint of what is trained and evaluated on.
std::uint64_t FingerprintOfRows(const TrainInputs& inputs) {
  if (!inputs.eval) return inputs.dataset->Fingerprint();
  const std::uint64_t both[] = {inputs.dataset->Fingerprint(), inputs.eval->Fingerprint()};
  return XXH3_64bits(both, sizeof both);
}

}  // namespace

std::uint64_t SettingsFingerprint(const TrainSpec& train) {
  SettingsHash hash;
  const auto add = [&hash](const auto&... settings) { (hash.Add(settings), ...); };
  const FsdpSpec& fsdp = train.fsdp;
  add(fsdp.strategy, fsdp.blocks_per_unit, fsdp.expert_parallel, fsdp.mixed_precision,
      fsdp.reduce_dtype, fsdp.buffer_dtype, fsdp.activation_checkpointing, fsdp.cpu_offload,
      fsdp.reduce_every_micro_batch);
  const OptimizerSpec& optimizer = train.optimizer;
  add(optimizer.lr, optimizer.beta1, optimizer.beta2, optimizer.eps, optimizer.weight_decay,
      optimizer.grad_clip, optimizer.master_weights, optimizer.moments);
  const ScheduleSpec& schedule = train.schedule;
  add(schedule.kind, schedule.warmup_ratio, schedule.warmup_steps.value_or(-1), schedule.max_steps,
      schedule.epochs);
  add(train.data.group_by_length, train.data.packing, train.data.eval_ratio,
      train.data.eval.empty(), train.data.text_field, train.data.train_on_all,
      train.data.chat_date);
  add(train.lora.has_value(), train.lora.value_or(LoraSpec()).init_from.empty(),
      AdapterFormText(AdapterFormOf(train)));
  add(train.batch.per_rank, train.batch.accumulation, train.data.shuffle, train.checkpoint.every,
      train.snapshot.every, train.snapshot.buddy, train.init_from.path.empty(),
      train.init_from.optimizer, train.profile.start, train.profile.steps, train.nonfinite,
      train.deterministic, train.seed);
  const EvalSpec& eval = train.eval;
  add(train.eval_every(), eval.at_start, eval.max_new_tokens, eval.early_stop.patience,
      eval.early_stop.min_delta, eval.keep_best, eval.samples.size(), train.output_export);
  for (const std::string& prompt : eval.samples) add(prompt);
  return hash.value();
}

TrainResult<std::optional<std::uint64_t>> AgreeOnInputs(const JobSpec& spec,
                                                        const TrainInputs& inputs,
                                                        Communicator& communicator) {
  const std::array<std::optional<std::uint64_t>, kInputCount> mine = {
      XXH3_64bits(inputs.config.raw_json.data(), inputs.config.raw_json.size()),
      FingerprintOfRows(inputs), SettingsFingerprint(*spec.train), inputs.base_weights};
  // The largest of x and of its complement: equal on all ranks only if they belong together.
  std::array<std::int64_t, 2 * kInputCount> largest;
  constexpr std::int64_t kNothing = std::numeric_limits<std::int64_t>::min();
  for (int i = 0; i < kInputCount; ++i) {
    largest[2 * i] = mine[i] ? static_cast<std::int64_t>(*mine[i]) : kNothing;
    largest[2 * i + 1] = mine[i] ? ~largest[2 * i] : kNothing;
  }
  MUSTER_RETURN_IF_ERROR(
      communicator.AllReduce(largest.data(), largest.size(), ElementType::kInt64, ReduceOp::kMax)
          ->Wait());
  for (int i = 0; i < kInputCount; ++i) {
    const bool nobody_says = largest[2 * i] == kNothing && largest[2 * i + 1] == kNothing;
    if (!nobody_says && largest[2 * i] != ~largest[2 * i + 1]) {
      return Differs(static_cast<Input>(i), spec, inputs, communicator.rank());
    }
  }
  const std::int64_t found = largest[2 * kWeights];
  if (found == kNothing) return std::optional<std::uint64_t>();
  return std::optional(static_cast<std::uint64_t>(found));
}

}  // namespace muster
