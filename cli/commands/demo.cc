// demo: trains a small model from scratch in a cluster of its own, kills a rank, and shows how the
// job recovers and what the model learned.

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <utility>

#include "cli/base/exit_code.h"
#include "cli/base/processes.h"
#include "cli/base/temporary_directory.h"
#include "cli/client/ready_job.h"
#include "cli/commands/verb.h"
#include "cli/jobs/job_json.h"
#include "cli/jobs/timeline.h"
#include "cli/local/cluster_keeper.h"
#include "cli/local/local_cluster.h"
#include "common/base/files.h"
#include "common/process/run_child.h"

namespace muster::verbs {
namespace {

namespace fs = std::filesystem;

constexpr int kSteps = 120;
constexpr Duration kLimitOfAStep = std::chrono::minutes(10);
constexpr Duration kTrainerLimit = std::chrono::minutes(2);
constexpr Duration kOwnModelLimit = std::chrono::hours(1);  // of billions of parameters
constexpr Duration kLook = std::chrono::milliseconds(200);
constexpr int kAnswerMillis = 5000;                         // for the user to kill the rank
constexpr std::uint64_t kSpace = std::uint64_t{256} << 20;  // of its own model, with checkpoints
constexpr char kMarker[] = ".muster-demo";

struct Lesson {
  const char* question;
  const char* answer;
};
constexpr Lesson kLessons[] = {
    {"What is a rank?", "One process of a gang, on one GPU or some processors."},
    {"What is a gang?", "All ranks of an attempt; all of them start, or none."},
    {"What is a spare?", "A node that waits to take over from one that is lost."},
    {"What is a checkpoint?", "The state of a training on disk, from which it goes on."},
    {"What is a snapshot?", "The state of a training in memory, kept by the guardian."},
    {"What is a guardian?", "A small process that outlives the ranks and holds their state."},
    {"What is a queue?", "A line of jobs with a guarantee, a ceiling and a weight."},
    {"What does a coordinator do?", "It decides which job runs on which nodes."},
    {"How high is Mont Blanc?", "4,806 metres above the sea."},
    {"How far is the Moon?", "About 384,400 kilometres away."},
    {"What is the capital of Peru?", "Lima."},
    {"What is the capital of Kenya?", "Nairobi."},
    {"What is the capital of Norway?", "Oslo."},
    {"What is the capital of Vietnam?", "Hanoi."},
    {"Who wrote Moby-Dick?", "Herman Melville, in 1851."},
    {"Who wrote Frankenstein?", "Mary Shelley, in 1818."},
    {"What is water made of?", "Hydrogen and oxygen."},
    {"What is seven times eight?", "Fifty-six."},
    {"Which planet has rings?", "Saturn has the brightest ones."},
    {"What is a muster?", "A gathering to count who is there."},
};

// Where the Hub's cache is: ranks have a HOME, and no other variable of this shell.
std::string CacheText() {
  nlohmann::json variables = nlohmann::json::object();
  for (const char* const name : {"HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"})
    if (const char* const value = std::getenv(name)) variables[name] = value;
  return "env: " + variables.dump() + "\n";
}

std::string JobText(const std::string& dir, const std::string& model, bool from_scratch) {
  const auto quoted = [](const std::string& text) { return nlohmann::json(text).dump(); };
  return "name: demo\n"
         "resources: {nodes: 2, ranks_per_node: 1, device: cpu, cpus_per_rank: 1}\n"
         "train:\n"
         "  model: {path: " +
         quoted(model) +
         "}\n"
         "  data: {train: " +
         quoted(dir + "/lessons.jsonl") +
         ", max_seq_len: 128}\n"
         "  fsdp: {strategy: full_shard, mixed_precision: fp32}\n"
         "  optimizer: {lr: " +
         (from_scratch ? "1.5e-3" : "2.0e-4") +
         ", weight_decay: 0.0}\n"
         "  schedule: {kind: cosine, warmup_steps: 10, max_steps: " +
         std::to_string(kSteps) +
         "}\n"
         "  batch: {per_rank: 5}\n"
         "  checkpoint: {every: 40}\n"
         "  output: {dir: " +
         quoted(dir + "/out") + "}\n" + CacheText();
}

class DemoRun {
 public:
  DemoRun(CommandContext& context, std::string dir, std::string model)
      : context_(context),
        dir_(std::move(dir)),
        model_(std::move(model)),
        trainer_limit_(model_.empty() ? kTrainerLimit : kOwnModelLimit),
        client_(dir_ + "/cluster", context.interrupt()) {}

  CommandResult Run() {
    MUSTER_RETURN_IF_ERROR(Prepare());
    const CommandResult shown = Show();
    // A signal has ended what was under way, and must not end this too.
    (void)context_.interrupt().Take();
    const auto ended = LocalCluster(client_, binaries_).Down(std::chrono::seconds(10));
    if (ended.ok() && ended->left.empty()) keeper_.Dismiss();
    if (shown.ok() && !ended.ok()) return ended.status();
    return shown;
  }

 private:
  std::ostream& out() { return context_.terminal.out; }
  void Say(const std::string& text) { out() << "\n" << text << "\n" << std::flush; }

  // Whatever an earlier demo left there makes room; a user's own files do not.
  Status Prepare() {
    MUSTER_ASSIGN_OR_RETURN(binaries_, OwnBinaryDirectory());
    std::error_code error;
    const fs::path dir = dir_;
    if (fs::exists(dir, error) && !fs::is_directory(dir, error))
      return FailedPrecondition(dir_ + " is not a directory\n  next: choose one with --out DIR");
    if (fs::exists(dir, error) && !fs::is_empty(dir, error) && !fs::exists(dir / kMarker, error))
      return FailedPrecondition(dir_ +
                                " has files that are not of a demo\n  next: choose an empty "
                                "directory with --out DIR");
    MUSTER_RETURN_IF_ERROR(MakeDirectories(dir_));
    MUSTER_RETURN_IF_ERROR(WriteFileAtomically(dir / kMarker, ""));
    MUSTER_RETURN_IF_ERROR(
        LocalCluster(client_, binaries_).Down(std::chrono::seconds(10)).status());
    for (const char* const old : {"cluster", "model", "out"}) fs::remove_all(dir / old, error);
    MUSTER_RETURN_IF_ERROR(CheckSpace());
    std::string lessons;
    for (const Lesson& lesson : kLessons)
      lessons +=
          nlohmann::json{{"prompt", lesson.question}, {"completion", lesson.answer}}.dump() + "\n";
    return WriteFileAtomically(dir / "lessons.jsonl", lessons);
  }

  // A coordinator or a job that finds the disk full half-way tells its user much later.
  Status CheckSpace() const {
    std::error_code error;
    const fs::space_info space = fs::space(dir_, error);
    if (error || space.available >= kSpace) return OkStatus();
    return FailedPrecondition(HumanBytes(space.available) + " are free in " + dir_ +
                              ", and the demo takes " + HumanBytes(kSpace) +
                              "\n  next: choose another place with --out DIR or TMPDIR");
  }

  CommandResult Show() {
    const bool from_scratch = model_.empty();
    if (from_scratch) {
      model_ = dir_ + "/model";
      Say("A model of 3 million parameters with random weights:");
      MUSTER_RETURN_IF_ERROR(Trainer({"init-model", "--preset", "tiny", "--out", model_}).status());
    }
    MUSTER_ASSIGN_OR_RETURN(const int before, RightAnswers(model_));
    out() << "it answers " << before << " of " << std::size(kLessons) << " questions as " << dir_
          << "/lessons.jsonl has them\n";
    MUSTER_RETURN_IF_ERROR(StartCluster());
    MUSTER_ASSIGN_OR_RETURN(const std::string job, SubmitJob(from_scratch));
    MUSTER_RETURN_IF_ERROR(Train(job));
    MUSTER_ASSIGN_OR_RETURN(const int after, RightAnswers(dir_ + "/out/model"));
    Say("The trained model answers " + std::to_string(after) + " of " +
        std::to_string(std::size(kLessons)) +
        " questions word for word. That is memorisation: it was trained on them.");
    MUSTER_RETURN_IF_ERROR(Chat());
    return after > before ? kExitSuccess : kExitJobFailed;
  }

  // What a verb of the trainer prints.
  Result<std::string> Trainer(std::vector<std::string> words, const std::string& input = "") {
    if (context_.interrupt().requested()) return Cancelled("interrupted");
    words.insert(words.begin(), binaries_ + "/muster-trainer");
    MUSTER_ASSIGN_OR_RETURN(
        const ChildOutcome outcome,
        RunChild({.spawn = {.argv = std::move(words), .environment = OwnEnvironment()},
                  .input = input,
                  .max_output = 1 << 20,
                  .errors_apart = true,
                  .limit = trainer_limit_}));
    if (outcome.ok()) return outcome.output;
    // Its last line is in what is described.
    const std::string& errors = outcome.errors;
    const bool has_more = errors.find('\n') + 1 < errors.size() && errors.find('\n') != errors.npos;
    return Unavailable("muster-trainer: " + outcome.Describe() + (has_more ? "\n" + errors : "") +
                       "\n  next: muster doctor");
  }

  Result<int> RightAnswers(const std::string& model) {
    MUSTER_ASSIGN_OR_RETURN(const std::string lines,
                            Trainer({"generate", "--model", model, "--chat", "--max-new-tokens",
                                     "64", "--prompts", dir_ + "/lessons.jsonl"}));
    int right = 0;
    std::istringstream stream(lines);
    for (const Lesson& lesson : kLessons) {
      std::string line;
      std::getline(stream, line);
      const nlohmann::json answer = nlohmann::json::parse(line, nullptr, false);
      right += answer.is_object() && answer.value("text", "") == lesson.answer ? 1 : 0;
    }
    return right;
  }

  Status StartCluster() {
    Say("A cluster of two nodes on this machine (muster up --nodes 2):");
    MUSTER_RETURN_IF_ERROR(keeper_.Start(binaries_ + "/muster", client_.dir()));
    MUSTER_ASSIGN_OR_RETURN(const UpReport report,
                            LocalCluster(client_, binaries_).Up({.nodes = 2, .slots = 1}));
    out() << "coordinator " << report.endpoint.grpc << ", " << report.ready << " nodes ready\n";
    return OkStatus();
  }

  Result<std::string> SubmitJob(bool from_scratch) {
    const std::string file = dir_ + "/job.yaml";
    MUSTER_RETURN_IF_ERROR(WriteFileAtomically(file, JobText(dir_, model_, from_scratch)));
    MUSTER_ASSIGN_OR_RETURN(const ReadyJob ready,
                            PrepareJob({.file = file}, context_.terminal.err));
    v1::SubmitRequest request;
    request.set_spec_yaml(ready.yaml);
    MUSTER_ASSIGN_OR_RETURN(const v1::SubmitResponse response, client_.Submit(request));
    Say("One rank trains on each (muster submit " + ShellWord(file) + "):");
    return response.id();
  }

  // Follows the job to its end, and kills rank 1 when half of the steps are done.
  Status Train(const std::string& id) {
    Deadline deadline = Deadline::After(kLimitOfAStep);
    std::int64_t shown = 0, finished = 0;
    for (bool killed = false;;) {
      MUSTER_ASSIGN_OR_RETURN(const v1::Job job, client_.GetJob(id));
      if (job.step() > finished) {
        finished = job.step();
        deadline = Deadline::After(kLimitOfAStep);
      }
      if (job.step() / 20 > shown) {
        shown = job.step() / 20;
        out() << "step " << job.step() << " of " << kSteps << "  loss " << Fixed(job.loss(), 3)
              << "\n"
              << std::flush;
      }
      if (IsTerminal(job.state())) return Report(job);
      if (!killed && job.step() >= kSteps / 2) killed = KillRank(job);
      if (deadline.Expired())
        return DeadlineExceeded("the job has finished no step for 10 min:\n" + Timeline(job));
      if (context_.interrupt().WaitFor(kLook)) return Cancelled("interrupted");
    }
  }

  std::string Timeline(const v1::Job& job) {
    return FormatTimeline(job, "--dir " + ShellWord(client_.dir()), SystemClock().UnixMillis());
  }

  Status Report(const v1::Job& job) {
    Say("What happened (muster describe demo):");
    out() << Timeline(job);
    if (job.state() == v1::JOB_STATE_SUCCEEDED) return OkStatus();
    return FailedPrecondition("the demo's job did not succeed; its logs are in " + dir_ +
                              "/out/logs");
  }

  // False: it does not run now.
  bool KillRank(const v1::Job& job) {
    pid_t pid = 0;
    for (const v1::RankStatus& rank : job.ranks())
      if (rank.rank() == 1 && rank.state() == v1::RANK_STATE_RUNNING)
        pid = static_cast<pid_t>(rank.pid());
    if (pid <= 0) return false;
    if (context_.terminal.out_is_tty) {
      Say("Press Enter to kill rank 1 (kill -9 " + std::to_string(pid) +
          "); it happens by itself in 5 s.");
      pollfd input{STDIN_FILENO, POLLIN, 0};
      std::string line;
      if (::poll(&input, 1, kAnswerMillis) > 0) std::getline(std::cin, line);
    }
    out() << "kill -9 " << pid << ", which is rank 1\n" << std::flush;
    return ::kill(pid, SIGKILL) == 0;
  }

  Status Chat() {
    if (!context_.terminal.out_is_tty) return OkStatus();
    Say("Ask it one of the questions (an empty line ends):");
    for (std::string line;
         out() << "> " << std::flush, std::getline(std::cin, line) && !line.empty();) {
      MUSTER_ASSIGN_OR_RETURN(const std::string answer,
                              Trainer({"generate", "--model", dir_ + "/out/model", "--chat",
                                       "--max-new-tokens", "64", "--prompt", line}));
      out() << answer;
    }
    return OkStatus();
  }

  CommandContext& context_;
  const std::string dir_;
  std::string model_;
  const Duration trainer_limit_;
  ClusterClient client_;
  ClusterKeeper keeper_;
  std::string binaries_;
};

}  // namespace

struct Demo {
  static constexpr char kName[] = "demo";
  static constexpr char kSummary[] = "Train a small model, kill a rank, and see it recover";

  std::string out_dir;
  std::string model;
  bool keep = false;

  void AddFlags(Flags& flags) {
    flags.Add("--out DIR", out_dir, "Directory for all files [default: a temporary one]");
    flags.Add(
        "--model DIR", model,
        "Model to train instead, a directory or ORG/NAME of the Hub [default: 3 M random weights]");
    flags.Add("--keep", keep, "Keep the files");
    flags.SetFooter("Takes 40 s on two processors; nothing runs any more at its end.");
  }

  CommandResult Run(CommandContext& context) const {
    MUSTER_RETURN_IF_ERROR(context.client.CheckIsLocal());
    std::string dir = out_dir;
    if (dir.empty()) {
      MUSTER_ASSIGN_OR_RETURN(dir, MakeTemporaryDirectory("muster-demo-"));
    }
    dir = fs::absolute(dir).lexically_normal().string();
    std::error_code error;
    // The job file lies elsewhere, and paths in it are below its folder.
    const std::string trained =
        fs::is_directory(model, error) ? fs::absolute(model).string() : model;
    const CommandResult result = DemoRun(context, dir, trained).Run();
    std::ostream& out = context.terminal.out;
    const bool stays = !out_dir.empty() || keep || !result.ok();
    if (!stays) fs::remove_all(dir, error);
    if (!result.ok() && !fs::exists(dir + "/" + kMarker, error)) return result;  // nothing was done
    out << "\n" << (stays ? "files  " + dir : "removed " + dir + " (--keep keeps it)") << "\n";
    if (result.ok()) out << "next   muster up, and muster config for a job of your own\n";
    return result;
  }
};

template void AddVerb<Demo>(CommandLine& line);

}  // namespace muster::verbs
