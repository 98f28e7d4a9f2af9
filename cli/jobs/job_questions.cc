#include "cli/jobs/job_questions.h"

#include <algorithm>
#include <charconv>
#include <istream>
#include <ostream>
#include <sstream>

#include "common/base/json.h"
#include "common/job_spec/job_spec.h"

namespace muster {
namespace {

constexpr int kMostRanks = 64;

Status SetNumber(const std::string& text, int low, int high, int* out) {
  int value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size() || value < low ||
      value > high)
    return InvalidArgument("expected a whole number from " + std::to_string(low) + " to " +
                           std::to_string(high) + ", got '" + text + "'");
  *out = value;
  return OkStatus();
}

Status SetEpochs(const std::string& text, double* out) {
  double value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size() || !(value > 0) ||
      value > 1000)
    return InvalidArgument("expected a number above 0, got '" + text + "'");
  *out = value;
  return OkStatus();
}

Status SetText(const std::string& text, std::string* out) {
  if (text.empty()) return InvalidArgument("must not be empty");
  *out = text;
  return OkStatus();
}

Status SetMethod(const std::string& text, std::string* out) {
  if (text != "full" && text != "lora" && text != "qlora")
    return InvalidArgument("expected full, lora or qlora, got '" + text + "'");
  *out = text;
  return OkStatus();
}

Status SetData(const std::string& text, std::string* out) {
  for (const char* ending : {".jsonl", ".npy", ".bin"})
    if (text.ends_with(ending)) return SetText(text, out);
  return InvalidArgument("expected a .jsonl, .npy or .bin file, got '" + text + "'");
}

std::string Shortest(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

// Every JSON string is a YAML string.
std::string Yaml(const std::string& text) { return nlohmann::json(text).dump(); }

int Accumulation(const JobAnswers& answers) {
  const int ranks = answers.nodes * answers.ranks_per_node;
  return std::max(1, (answers.batch + ranks - 1) / ranks);
}

std::string Adapters(const JobAnswers& answers) {
  if (answers.method == "full") return {};
  std::string text =
      "  lora:                       # adapters are trained, the model's own weights stay\n"
      "    r: 16                     # width of an adapter\n"
      "    alpha: 32                 # its products are scaled by alpha / r\n"
      "    target_modules: [q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj]\n";
  if (answers.method == "qlora")
    text += "  quantization: {kind: nf4}   # the model's own weights in 4 bits\n";
  return text;
}

}  // namespace

const std::vector<Question>& Questions() {
  static const std::vector<Question> questions = {
      {"name", "NAME", "Job name", "1 to 63 letters, digits, '-', '_' or '.'."},
      {"model", "DIR", "Model directory",
       "A Hugging Face directory with config.json, *.safetensors and tokenizer.json."},
      {"data", "FILE", "Training data",
       "A .jsonl file whose lines have messages, prompt and completion, instruction and output, or "
       "text; or token IDs in a .npy or .bin file."},
      {"method", "METHOD", "Training method: full, lora, or qlora",
       "full: train all weights; 18 bytes per weight, spread over all ranks. lora: train adapters; "
       "about 2 bytes per weight. qlora: the same with 4-bit weights."},
      {"device", "DEVICE", "Device: cpu, or a GPU such as A100-80, H100-80, H200, RTX-4090",
       "cpu: train on processors. The name of a GPU is used for the plan; the job runs on the GPUs "
       "that the nodes have."},
      {"nodes", "N", "Number of nodes", "All nodes start together."},
      {"ranks-per-node", "N", "Ranks per node", "Usually one for each GPU."},
      {"max-seq-len", "N", "Maximum tokens per row",
       "Longer rows are truncated. Memory use grows with this value."},
      {"batch", "N", "Rows per step, over all ranks",
       "Each rank reads one row at a time and accumulates gradients."},
      {"epochs", "NUMBER", "Epochs", "Number of passes over the data; 0.5 is half a pass."},
      {"output", "DIR", "Output directory", "For checkpoints, metrics, and the trained model."},
  };
  return questions;
}

std::string AnswerOf(const JobAnswers& answers, const std::string& key) {
  if (key == "name") return answers.name;
  if (key == "model") return answers.model;
  if (key == "data") return answers.data;
  if (key == "method") return answers.method;
  if (key == "device") return answers.device;
  if (key == "nodes") return std::to_string(answers.nodes);
  if (key == "ranks-per-node") return std::to_string(answers.ranks_per_node);
  if (key == "max-seq-len") return std::to_string(answers.max_seq_len);
  if (key == "batch") return std::to_string(answers.batch);
  if (key == "epochs") return Shortest(answers.epochs);
  return answers.output;
}

Status SetAnswer(const std::string& key, const std::string& text, JobAnswers* answers) {
  if (key == "name") return SetText(text, &answers->name);
  if (key == "model") return SetText(text, &answers->model);
  if (key == "data") return SetData(text, &answers->data);
  if (key == "method") return SetMethod(text, &answers->method);
  if (key == "device") return SetText(text, &answers->device);
  if (key == "nodes") return SetNumber(text, 1, kMaxClusterNodes, &answers->nodes);
  if (key == "ranks-per-node") return SetNumber(text, 1, kMostRanks, &answers->ranks_per_node);
  if (key == "max-seq-len") return SetNumber(text, 2, 1 << 20, &answers->max_seq_len);
  if (key == "batch") return SetNumber(text, 1, 1 << 20, &answers->batch);
  if (key == "epochs") return SetEpochs(text, &answers->epochs);
  return SetText(text, &answers->output);
}

Status AskQuestions(std::istream& in, std::ostream& out, const std::set<std::string>& given,
                    JobAnswers* answers) {
  for (const Question& question : Questions()) {
    if (given.contains(question.key)) continue;
    for (;;) {
      out << question.text << " [" << AnswerOf(*answers, question.key)
          << "] (? for help): " << std::flush;
      std::string line;
      if (!std::getline(in, line))
        return Cancelled("end of input; not all questions were answered");
      if (line.empty()) break;
      if (line == "?") {
        out << "  " << question.help << "\n";
        continue;
      }
      const Status set = SetAnswer(question.key, line, answers);
      if (set.ok()) break;
      out << "  " << set.message() << "\n";
    }
  }
  return OkStatus();
}

std::string JobText(const JobAnswers& a) {
  std::ostringstream text;
  text << "# Made by `muster config`. docs/job-file.md explains every key, and those left out "
          "here.\n"
       << "name: " << Yaml(a.name) << "\n"
       << "resources: {nodes: " << a.nodes << ", ranks_per_node: " << a.ranks_per_node
       << ", device: " << (a.on_gpus() ? "cuda" : "cpu") << "}\n"
       << "train:\n"
       << "  model: {path: " << Yaml(a.model) << "}   # relative to this file\n"
       << "  data:\n"
       << "    train: " << Yaml(a.data) << "\n"
       << "    max_seq_len: " << a.max_seq_len << "       # longer rows are cut, and counted\n"
       << Adapters(a) << "  fsdp:\n"
       << "    strategy: full_shard      # state and weights over all ranks\n"
       << "    mixed_precision: bf16     # master weights and sums stay fp32\n"
       << "    activation_checkpointing: selective   # full: less memory, a third more work\n"
       << "  optimizer: {lr: " << (a.method == "full" ? "1.0e-5" : "2.0e-4")
       << ", weight_decay: 0.01, grad_clip: 1.0}\n"
       << "  schedule: {kind: cosine, warmup_ratio: 0.03, epochs: " << Shortest(a.epochs) << "}\n"
       << "  # A step reads per_rank x accumulation x ranks rows.\n"
       << "  batch: {per_rank: 1, accumulation: " << Accumulation(a) << "}\n"
       << "  checkpoint: {every: 50, keep: 3}   # steps; a resume is automatic\n"
       << "  output: {dir: " << Yaml(a.output) << "}\n";
  return text.str();
}

std::vector<std::string> NextCommands(const JobAnswers& answers, const std::string& file) {
  const std::string device = answers.on_gpus() ? " --device " + answers.device : "";
  return {"muster-trainer plan " + file + device, "muster submit " + file};
}

}  // namespace muster
