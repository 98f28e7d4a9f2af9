#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>

#include "common/base/files.h"
#include "common/control_pipe/trainer_protocol.h"
#include "common/job_spec/foreign_config.h"
#include "common/job_spec/lora_targets.h"
#include "common/job_spec/parse.h"
#include "trainer/plan/run_plan.h"
#include "trainer/verbs/plan_inputs.h"
#include "trainer/verbs/verbs.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr double kGB = 1e9;
constexpr int kExitDoesNotFit = 1;

std::optional<std::int64_t> CountLines(const fs::path& data) {
  if (data.extension() != ".jsonl") return std::nullopt;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(data.c_str(), "rb"),
                                                             std::fclose);
  if (file == nullptr) return std::nullopt;
  std::int64_t rows = 0;
  char buffer[1 << 16];
  while (const std::size_t size = std::fread(buffer, 1, sizeof buffer, file.get()))
    rows += std::count(buffer, buffer + size, '\n');
  return rows;
}

// Unknown where a row need not be a line: of other files, and where several are packed into one.
std::optional<std::int64_t> CountRows(const JobSpec& spec, const std::string& file) {
  if (spec.train->data.packing || spec.train->data.eval_ratio > 0) return std::nullopt;
  std::int64_t rows = 0;
  for (const std::string& path : spec.train->data.train) {
    const std::optional<std::int64_t> lines = CountLines(Below(spec, file, path));
    if (!lines) return std::nullopt;
    rows += *lines;
  }
  return rows;
}

std::string Known() {
  std::string names = "cpu";
  for (const std::string& name : KnownDevices()) names += ", " + name;
  return names;
}

Result<Hardware> ChooseHardware(const PlanOptions& options, const JobSpec& spec) {
  Hardware hardware;
  if (options.device == "cpu" || (options.device.empty() && spec.resources.device == "cpu")) {
    hardware = ThisHost(spec);
  } else if (const auto known = FindHardware(options.device)) {
    hardware = *known;
  } else if (!options.device.empty() && options.memory_gb > 0 && options.peak_tflops > 0) {
    hardware = {.name = options.device, .source = "given"};
  } else {
    return InvalidArgument("--device: name one of " + Known() +
                           "; or any name with --memory-gb and --peak-tflops");
  }
  const auto override = [](double given, double unit, double* value) {
    if (given > 0) *value = given * unit;
  };
  override(options.memory_gb, kGB, &hardware.memory_bytes);
  override(options.peak_tflops, 1, &hardware.peak_tflops);
  override(options.achievable, 1, &hardware.achievable);
  override(options.link_gb_s, kGB, &hardware.link_rate);
  override(options.network_gbit_s, kGB / 8, &hardware.network_rate);
  override(options.host_memory_gb, kGB, &hardware.host_memory_bytes);
  if (options.peak_tflops > 0) hardware.source = "given";
  return hardware;
}

Result<PlanQuestion> ReadQuestion(const PlanOptions& options) {
  MUSTER_ASSIGN_OR_RETURN(std::string text, ReadFile(options.file));
  MUSTER_ASSIGN_OR_RETURN(text, ApplyOverrides(text, options.overrides));
  if (!options.accelerate_config.empty()) {
    MUSTER_ASSIGN_OR_RETURN(const ForeignConfig config,
                            ReadForeignConfig(options.accelerate_config));
    MUSTER_ASSIGN_OR_RETURN(MergedJob merged, MergeForeignConfig(text, options.file, config));
    for (const std::string& line : merged.report) std::fprintf(stderr, "%s\n", line.c_str());
    text = std::move(merged.yaml);
  }
  MUSTER_ASSIGN_OR_RETURN(JobSpec spec, ParseJobSpec(text, options.file));
  if (!spec.train)
    return InvalidArgument(options.file + ": has no train block; only training is planned");
  PlanQuestion question;
  MUSTER_ASSIGN_OR_RETURN(question.hardware, ChooseHardware(options, spec));
  if (options.nodes > 0) spec.resources.nodes = options.nodes;
  if (options.ranks_per_node > 0) spec.resources.ranks_per_node = options.ranks_per_node;
  spec.resources.device = question.hardware.is_host ? "cpu" : "cuda";
  const std::string& named = options.model.empty() ? spec.train->model.path : options.model;
  const fs::path model = options.model.empty() ? Below(spec, options.file, named) : fs::path(named);
  MUSTER_ASSIGN_OR_RETURN(question.job.model, ReadShape(model, named));
  question.job.train = *spec.train;
  question.job.resources = spec.resources;
  if (options.lora_r > 0) {
    LoraSpec& lora = question.job.train.lora.emplace(LoraSpec{.r = options.lora_r});
    // The dense layers of a mixture have no adapters.
    if (question.job.model.SparseLayers() > 0)
      lora.target_modules = {"q_proj", "k_proj", "v_proj", "o_proj", kExpertGateUp, kExpertDown};
    if (options.nf4) question.job.train.quantization.emplace();
  }
  question.job.supervised = !options.standalone;
  question.rows = options.rows > 0 ? options.rows : CountRows(spec, options.file);
  question.cost_per_hour = options.cost_per_hour;
  return question;
}

}  // namespace

int RunPlanVerb(const PlanOptions& options) {
  const Result<PlanQuestion> question = ReadQuestion(options);
  const Result<RunPlan> plan =
      question.ok() ? PlanRun(*question) : Result<RunPlan>(question.status());
  if (!plan.ok()) {
    std::fprintf(stderr, "muster-trainer plan: %s\n", plan.status().message().c_str());
    return kExitBadInput;
  }
  const std::string text =
      options.output == "json" ? PlanJson(*question, *plan) + "\n" : PlanText(*question, *plan);
  std::fputs(text.c_str(), stdout);
  return plan->fits() ? kExitOk : kExitDoesNotFit;
}

}  // namespace muster
