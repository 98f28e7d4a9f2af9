#include "common/slurm/sbatch_script.h"
#include "common/job_spec/queue_names.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"
#include "common/process/run_child.h"

namespace muster::slurm {
namespace {

constexpr char kNasty[] = "a b'c\"d$HOME`id`;&|*?#%~!(e)[f]{g}<h>";

ScriptRequest RequestIn(const std::string& workdir) {
  ScriptRequest request;
  request.key = "k1";
  request.spec.name = "first";
  request.spec.workdir = workdir;
  request.spec.train.emplace();
  request.spec.resources.nodes = 2;
  request.spec.resources.ranks_per_node = 4;
  return request;
}

std::string Rendered(const ScriptRequest& request) {
  const auto script = RenderScript(request);
  EXPECT_TRUE(script.ok()) << script.status().ToString();
  return script.ok() ? *script : "";
}

bool HasLine(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

TEST(SbatchScript, RequestsWhatTheJobFileNeeds) {
  ScriptRequest request = RequestIn("/shared/run");
  request.spec.resources.device = "cuda";
  request.spec.resources.spares = 1;
  request.spec.resources.exclude = {"n7", "n8", "n10"};
  request.spec.resources.time_limit_seconds = 26 * 3600 + 61;
  const std::string script = Rendered(request);
  for (const char* line :
       {"#!/bin/bash", "#SBATCH --job-name=first",
        "#SBATCH --comment='muster key=k1 at /shared/run/out/slurm-'", "#SBATCH --nodes=2-3",
        "#SBATCH --exclusive", "#SBATCH --mem=0", "#SBATCH --gpus-per-node=4",
        "#SBATCH --exclude=n[7-8,10]", "#SBATCH --time=1-02:02:00", "#SBATCH --no-kill",
        "#SBATCH --requeue", "#SBATCH --signal=USR2@180", "#SBATCH --open-mode=append",
        "#SBATCH --chdir=/shared/run",
        "#SBATCH --output=/shared/run/out/slurm/first-k1/slurm-%j.out"})
    EXPECT_TRUE(HasLine(script, line)) << line << "\n" << script;
  EXPECT_NE(
      script.find("muster-worker --auto --job /shared/run/out/slurm/first-k1/job.yaml --state "
                  "\"$state\" &\n"),
      std::string::npos);
}

TEST(SbatchScript, LeavesToSlurmWhenAJobRuns) {
  const auto refusal = [](void (*change)(JobSpec&)) {
    ScriptRequest request = RequestIn("/shared/run");
    change(request.spec);
    const auto script = RenderScript(request);
    EXPECT_EQ(script.status().code(), StatusCode::kInvalidArgument);
    return script.status().message();
  };
  EXPECT_NE(refusal([](JobSpec& spec) { spec.begin = "2026-11-28T06:00:00Z"; }).find("--begin"),
            std::string::npos);
  EXPECT_NE(refusal([](JobSpec& spec) { spec.hold = true; }).find("--hold"), std::string::npos);
  EXPECT_NE(refusal([](JobSpec& spec) { spec.queue = "a"; }).find("--partition"),
            std::string::npos);
  EXPECT_NE(refusal([](JobSpec& spec) { spec.priority_class = "high"; }).find("--qos"),
            std::string::npos);
  ScriptRequest defaults = RequestIn("/shared/run");
  defaults.spec.queue = kDefaultQueue;
  defaults.spec.priority_class = kNormalClass;
  EXPECT_TRUE(RenderScript(defaults).ok());
}

TEST(SbatchScript, GivesWayToTheUsersOptions) {
  ScriptRequest request = RequestIn("/shared/run");
  request.spec.resources.device = "cuda";
  request.spec.resources.cpus_per_rank = 3;
  const auto options = SbatchOptions::Parse(
      {"-N", "8", "--gres=gpu:h100:4", "--time=60", "--no-requeue", "--signal=USR2@600",
       "--mem-per-cpu=4G", "--oversubscribe", "--partition=a b"});
  ASSERT_TRUE(options.ok());
  request.options = *options;
  const std::string script = Rendered(request);
  for (const char* mine :
       {"--nodes=2", "--gpus-per-node", "--exclusive", "--mem=0", "--requeue\n", "USR2@180"})
    EXPECT_EQ(script.find(std::string("#SBATCH ") + mine), std::string::npos) << mine;
  for (const char* line :
       {"#SBATCH --nodes=8", "#SBATCH --gres=gpu:h100:4", "#SBATCH --no-requeue",
        "#SBATCH --cpus-per-task=12", "#SBATCH --partition='a b'", "#SBATCH --signal=USR2@600"})
    EXPECT_TRUE(HasLine(script, line)) << line;
}

// It would fail behind the queue otherwise.
TEST(SbatchScript, RequestsNoFewerNodesThanTheJobNeeds) {
  for (const char* few : {"-N1", "--nodes=1-4", "--nodelist=n7"}) {
    ScriptRequest request = RequestIn("/shared/run");
    request.options = *SbatchOptions::Parse({few});
    const auto script = RenderScript(request);
    EXPECT_EQ(script.status().code(), StatusCode::kInvalidArgument) << few;
    EXPECT_NE(script.status().message().find("ask for --nodes=2 or more"), std::string::npos);
  }
  for (const char* enough : {"-N2", "--nodes=2-4", "--nodelist=n[7-8]", "--nodes=1k"}) {
    ScriptRequest request = RequestIn("/shared/run");
    request.options = *SbatchOptions::Parse({enough});
    EXPECT_TRUE(RenderScript(request).ok()) << enough;
  }
}

// Neither a home nor the current directory need be where they lie.
TEST(SbatchScript, MountsItsDirectoriesInAContainerUnlessTheUserDoes) {
  ScriptRequest request = RequestIn("/shared/run");
  request.spec.train->output_dir = "/scratch/out";
  request.apptainer_image = "m.sif";
  const auto has = [&](const std::string& words) {
    const std::string script = Rendered(request);
    EXPECT_NE(script.find(words), std::string::npos) << words << "\n" << script;
  };
  has("exec --bind /shared/run --bind /scratch/out m.sif");
  request.apptainer_options = {"--bind=/data,/shared", "-B", "/x:/scratch/out:rw"};
  has("exec --bind=/data,/shared -B /x:/scratch/out:rw m.sif");
  request.apptainer_image.clear();
  request.options = *SbatchOptions::Parse({"--container-image=m", "--container-mounts=/data"});
  has("  --container-image=m \\\n  --container-mounts=/data,/shared/run,/scratch/out \\\n");
  request.options = *SbatchOptions::Parse({"--container-image=m"});
  request.spec.workdir = "/a:b";
  EXPECT_EQ(RenderScript(request).status().code(), StatusCode::kInvalidArgument);
}

TEST(SbatchScript, ForACommandHasItsFilesInTheWorkdir) {
  ScriptRequest request = RequestIn("/w");
  request.spec.train.reset();
  request.spec.command = {"true"};
  const JobPlaces places = PlacesOf(request.spec, "k");
  EXPECT_EQ(places.submission, "/w/muster-first/slurm/first-k");
  EXPECT_EQ(places.state_prefix, "/w/muster-first-slurm-");
}

TEST(SbatchScript, RefusesWhatSlurmCouldNotRead) {
  EXPECT_FALSE(RenderScript(RequestIn("/a\\b")).ok());
  EXPECT_FALSE(RenderScript(RequestIn("/a\nb")).ok());
  EXPECT_FALSE(RenderScript(RequestIn("relative")).ok());
  for (const char* key : {"", "a/b", "..", "a b"}) {
    ScriptRequest request = RequestIn("/a");
    request.key = key;
    EXPECT_FALSE(RenderScript(request).ok()) << key;
  }
}

TEST(SbatchComment, IsReadBack) {
  const auto comment = ParseComment(CommentOf("k-1", {"/s", "/o ut/slurm-"}));
  ASSERT_TRUE(comment);
  EXPECT_EQ(comment->key, "k-1");
  EXPECT_EQ(comment->state_prefix, "/o ut/slurm-");
  EXPECT_FALSE(ParseComment("muster key=k"));
  EXPECT_FALSE(ParseComment("mine"));
}

// Runs the script for real, with scripts in the place of Slurm's commands.
class Batch : public testing::Test {
 protected:
  Batch() : request_(RequestIn(dir_ / "w")) {
    Install("squeue", "echo RUNNING");
    Install("scontrol", "echo \"$*\" >> " + ShellQuoted(dir_ / "scontrol.calls"));
    Install("sleep", "exit 0");
    Srun("exit 0");
  }

  void Install(const std::string& command, const std::string& body) {
    ASSERT_TRUE(MakeDirectories(dir_ / "bin").ok());
    const Status written =
        WriteFileAtomically(dir_ / ("bin/" + command), "#!/bin/bash\n" + body + "\n", 0755);
    ASSERT_TRUE(written.ok()) << written.ToString();
  }

  // Its words, one per line and in order, then what it does.
  void Srun(const std::string& body) {
    Install("srun", "printf '%s\\n' \"$@\" > " + ShellQuoted(dir_ / "srun.words") + "\n" + body);
  }

  // Slurm's word on what job 42 is excluded from, in its own short form and in full. An exclusion
  // is refused `refusals` times, as while a lost node is being given up.
  void Scontrol(const std::string& excluded, const std::string& names, int refusals = 0) {
    Install("scontrol",
            "case $1 in\n"
            "show) [[ $2 == hostnames ]] && printf " +
                ShellQuoted(names) +
                " || echo 'JobId=42 ReqNodeList=(null) ExcNodeList=" + excluded +
                " NodeList=n[1-3]'; exit ;;\nesac\n"
                "echo \"$*\" >> " +
                ShellQuoted(dir_ / "scontrol.calls") +
                "\n"
                "[[ $1 == requeue ]] || (($(grep -c update " +
                ShellQuoted(dir_ / "scontrol.calls") + ") > " + std::to_string(refusals) +
                ")) || { echo 'Unexpected message received'; exit 1; }");
  }

  // The supervisors' outcome of run 0, as the script finds it when srun has ended.
  void SrunLeaves(const std::string& outcome, int exit_code) {
    Srun("while [[ $1 != --state ]]; do shift; done\necho " + ShellQuoted(outcome) +
         " > \"$2/outcome.json\"\nexit " + std::to_string(exit_code));
  }

  int Run(const std::string& restarts = "") {
    const JobPlaces places = PlacesOf(request_.spec, request_.key);
    EXPECT_TRUE(MakeDirectories(places.submission).ok());
    const std::string script = places.submission + "/run.sbatch";
    EXPECT_TRUE(WriteFileAtomically(script, Rendered(request_)).ok());
    RunChildOptions options;
    options.spawn.argv = {"/bin/bash", script};
    options.spawn.environment = {"PATH=" + dir_ / "bin" + ":/usr/bin:/bin", "SLURM_JOB_ID=42",
                                 "SLURM_JOB_NUM_NODES=3", "SLURM_JOB_NODELIST=n[1-3]"};
    if (!restarts.empty()) options.spawn.environment.push_back("SLURM_RESTART_COUNT=" + restarts);
    options.max_output = 1 << 20;
    const auto outcome = RunChild(options);
    EXPECT_TRUE(outcome.ok());
    output_ = outcome->output;
    return outcome->exit.signal != 0 ? -outcome->exit.signal : outcome->exit.exit_code;
  }

  std::string Written(const std::string& name) const {
    const auto text = ReadFile(dir_ / name);
    return text.ok() ? *text : "";
  }

  TempDirForTest dir_;
  ScriptRequest request_;
  std::string output_;
};

TEST_F(Batch, GivesSrunEveryWordAsItIs) {
  request_.spec.workdir = dir_ / kNasty;
  request_.worker = dir_ / "bin" + std::string("/") + kNasty;
  request_.worker_arguments = {"--set", std::string("env.X=") + kNasty, ""};
  request_.apptainer_image = kNasty;
  request_.apptainer_options = {"--bind", kNasty};
  const auto options = SbatchOptions::Parse({std::string("--container-image=") + kNasty});
  ASSERT_TRUE(options.ok());
  request_.options = *options;
  // Its directories would need both kinds of quotes in #SBATCH lines, which is refused.
  EXPECT_FALSE(RenderScript(request_).ok());
  request_.spec.workdir = dir_ / "a b'c$HOME`id`;&|*?#%~!(e)[f]{g}<h>";
  SrunLeaves("{\"run\":0,\"exit_code\":0}", 0);
  EXPECT_EQ(Run(), 0) << output_;
  const std::string state = request_.spec.workdir + "/out/slurm-42";
  std::string logs = state;
  logs.replace(logs.find('%'), 1, "%%");
  std::string expected;
  for (const std::string& word : {std::string("--nodes=3"),
                                  std::string("--ntasks=3"),
                                  std::string("--ntasks-per-node=1"),
                                  std::string("--cpu-bind=none"),
                                  std::string("--no-kill"),
                                  std::string("--kill-on-bad-exit=0"),
                                  std::string("--wait=0"),
                                  std::string("--open-mode=append"),
                                  "--output=" + logs + "/supervisor.%t.log",
                                  std::string("--container-image=") + kNasty,
                                  "--container-mounts=" + request_.spec.workdir,
                                  std::string("apptainer"),
                                  std::string("exec"),
                                  std::string("--bind"),
                                  request_.spec.workdir,
                                  std::string("--bind"),
                                  std::string(kNasty),
                                  std::string(kNasty),
                                  request_.worker,
                                  std::string("--auto"),
                                  std::string("--job"),
                                  request_.spec.workdir + "/out/slurm/first-k1/job.yaml",
                                  std::string("--state"),
                                  state,
                                  std::string("--set"),
                                  std::string("env.X=") + kNasty,
                                  std::string()})
    expected += word + "\n";
  EXPECT_EQ(Written("srun.words"), expected);
}

TEST_F(Batch, EndsWithTheSupervisorsOutcome) {
  // One lost node has polluted srun's code.
  SrunLeaves("{\"run\":0,\"exit_code\":0,\"action\":\"done\",\"reason\":\"\",\"exclude\":[]}", 137);
  EXPECT_EQ(Run(), 0) << output_;
  SrunLeaves("{\"run\":0,\"exit_code\":10,\"reason\":\"\\\"exit_code\\\":0\"}", 0);
  EXPECT_EQ(Run(), 10) << output_;
  EXPECT_EQ(Written("scontrol.calls"), "");
}

TEST_F(Batch, NeverSucceedsWithoutAnOutcome) {
  EXPECT_EQ(Run(), 70) << output_;
  Srun("exit 64");
  EXPECT_EQ(Run(), 64) << output_;
  // What an earlier run left does not count.
  SrunLeaves("{\"run\":0,\"exit_code\":0}", 0);
  EXPECT_EQ(Run("1"), 70) << output_;
  EXPECT_EQ(Written("scontrol.calls"), "");
}

constexpr char kWithoutTwo[] =
    "{\"run\":0,\"exit_code\":75,\"action\":\"requeue\",\"exclude\":[\"n1\", \"n2\"]}";

TEST_F(Batch, RequeuesWithoutTheBadNodes) {
  Scontrol("(null)", "");
  SrunLeaves(kWithoutTwo, 75);
  EXPECT_EQ(Run(), 75) << output_;
  EXPECT_EQ(Written("scontrol.calls"), "requeue 42\nupdate JobId=42 ExcNodeList=n1,n2\n");
}

TEST_F(Batch, KeepsWhatWasExcludedBefore) {
  Scontrol("n[2,7-8],n10", "n2\nn7\nn8\nn10\n");
  SrunLeaves(kWithoutTwo, 75);
  EXPECT_EQ(Run(), 75) << output_;
  EXPECT_EQ(Written("scontrol.calls"), "requeue 42\nupdate JobId=42 ExcNodeList=n[2,7-8],n10,n1\n");
}

TEST_F(Batch, ExcludesAsSoonAsSlurmTakesIt) {
  Scontrol("n9", "n9\n", 3);
  SrunLeaves(kWithoutTwo, 75);
  EXPECT_EQ(Run(), 75) << output_;
  const std::string update = "update JobId=42 ExcNodeList=n9,n1,n2\n";
  EXPECT_EQ(Written("scontrol.calls"), "requeue 42\n" + update + update + update + update);
  EXPECT_EQ(output_.find("exclude them"), std::string::npos) << output_;
}

TEST_F(Batch, PrintsThatItIsRequeuedAlsoWhereSlurmExcludesNothing) {
  Scontrol("(null)", "", 1000);
  SrunLeaves(kWithoutTwo, 75);
  EXPECT_EQ(Run(), 75) << output_;
  EXPECT_NE(output_.find("it is requeued, but may get n1,n2 again, since Slurm does not exclude "
                         "them: Unexpected message received"),
            std::string::npos)
      << output_;
  EXPECT_EQ(output_.find("could not be requeued"), std::string::npos) << output_;
}

TEST_F(Batch, PrintsThatItWasNotRequeued) {
  Install("scontrol", "exit 1");
  SrunLeaves(kWithoutTwo, 75);
  EXPECT_EQ(Run(), 75) << output_;
  EXPECT_NE(output_.find("could not be requeued; submit it again"), std::string::npos) << output_;
}

TEST_F(Batch, RequeuesAStepThatWasKilled) {
  Srun("exit 137");
  EXPECT_EQ(Run(), 75) << output_;
  EXPECT_EQ(Written("scontrol.calls"), "requeue 42\n");
}

TEST_F(Batch, LeavesAJobAloneThatSlurmIsEnding) {
  Install("squeue", "echo CANCELLED");
  SrunLeaves("{\"run\":0,\"exit_code\":75,\"action\":\"requeued\"}", 75);
  EXPECT_EQ(Run(), 75) << output_;
  EXPECT_EQ(Written("scontrol.calls"), "");
}

TEST_F(Batch, DoesNotRequeueForEver) {
  request_.max_requeues = 2;
  SrunLeaves("{\"run\":2,\"exit_code\":75,\"action\":\"requeue\"}", 75);
  EXPECT_EQ(Run("2"), 69) << output_;
  EXPECT_EQ(Written("scontrol.calls"), "");
}

TEST_F(Batch, PassesSignalsOnAndKeepsWaiting) {
  const std::string body =
      "trap 'got=1' USR2\n"
      "kill -s SIGNAL $PPID\n"
      "until [[ ${got:-} ]]; do sleep 0.02; done\n"
      "exit 11";
  for (const std::string signal : {"USR1", "USR2", "TERM"}) {
    std::string with = body;
    with.replace(with.find("SIGNAL"), 6, signal);
    Srun(with);
    EXPECT_EQ(Run(), 11) << signal << output_;
  }
}

}  // namespace
}  // namespace muster::slurm
