#include "common/job_spec/torchrun_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/job_spec/parse.h"
#include "common/job_spec/torchrun_table.h"

namespace muster {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Words = std::vector<std::string>;
using Variables = std::map<std::string, std::string>;

TorchrunSurroundings Surroundings() {
  return {.environment = {{"HF_HOME", "/models"}, {"RANK", "7"}, {"PWD", "/here"}},
          .directory = "/here",
          .python = "/usr/bin/python3",
          .cpus = 6,
          .gpus = 0,
          .nodes = 0};
}

Result<TorchrunJob> Make(const Words& words, const TorchrunSurroundings& with = Surroundings()) {
  MUSTER_ASSIGN_OR_RETURN(const TorchrunFlags flags, ParseTorchrunFlags(words, with.environment));
  return JobFromTorchrun(flags, with);
}

JobSpec SpecOf(const Words& words, const TorchrunSurroundings& with = Surroundings()) {
  const Result<TorchrunJob> job = Make(words, with);
  EXPECT_TRUE(job.ok()) << job.status().ToString();
  if (!job.ok()) return {};
  const Result<JobSpec> spec = ParseJobSpec(job->yaml);
  EXPECT_TRUE(spec.ok()) << spec.status().ToString() << "\n" << job->yaml;
  return spec.ok() ? *spec : JobSpec();
}

std::string Refusal(const Words& words, const TorchrunSurroundings& with = Surroundings()) {
  const Result<TorchrunJob> job = Make(words, with);
  EXPECT_EQ(job.status().code(), StatusCode::kInvalidArgument) << job.status().ToString();
  return job.status().message();
}

TEST(TorchrunFlagsTest, AnOrdinaryCallIsACommandJob) {
  const JobSpec spec = SpecOf({"--nnodes=2", "--nproc-per-node", "4", "--max-restarts=3",
                               "--rdzv-id", "chat-7", "train.py", "--lr", "1e-4", "--nnodes=9"});
  EXPECT_EQ(spec.name, "chat-7");
  EXPECT_EQ(spec.resources.nodes, 2);
  EXPECT_EQ(spec.resources.ranks_per_node, 4);
  EXPECT_EQ(spec.resources.device, "cpu");
  EXPECT_EQ(spec.resources.cpus_per_rank, 1);
  EXPECT_EQ(spec.restart.max_without_progress, 4) << "the first attempt counts too";
  EXPECT_EQ(spec.workdir, "/here");
  EXPECT_EQ(spec.rendezvous, RendezvousKind::kAgent);
  EXPECT_THAT(spec.command,
              ElementsAre("/usr/bin/python3", "-u", "train.py", "--lr", "1e-4", "--nnodes=9"));
}

TEST(TorchrunFlagsTest, WithoutFlagsItIsOneRankWithAllThreads) {
  const JobSpec spec = SpecOf({"/opt/my script!.py"});
  EXPECT_EQ(spec.name, "my-script-");
  EXPECT_EQ(spec.resources.nodes, 1);
  EXPECT_EQ(spec.resources.ranks_per_node, 1);
  EXPECT_EQ(spec.resources.cpus_per_rank, 6);
  EXPECT_EQ(spec.restart.max_without_progress, 1);
}

TEST(TorchrunFlagsTest, TheCallersVariablesGoAlongButNotThoseThatMusterSets) {
  TorchrunSurroundings with = Surroundings();
  with.environment.insert({{"OMP_NUM_THREADS", "3"},
                           {"PET_NNODES", "2"},
                           {"SLURM_PROCID", "0"},
                           {"SLURM_JOB_ID", "12"},
                           {"BASH_FUNC_which%%", "() {"},
                           {"TEXT", "two\nlines \"quoted\" \\ #"},
                           {"TORCHELASTIC_RUN_ID", "x"}});
  const JobSpec spec = SpecOf({"train.py"}, with);
  const Variables expected = {{"HF_HOME", "/models"},
                              {"SLURM_JOB_ID", "12"},
                              {"TEXT", "two\nlines \"quoted\" \\ #"},
                              {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"}};
  EXPECT_EQ(spec.env, expected);
  EXPECT_EQ(spec.resources.cpus_per_rank, 3);
  EXPECT_EQ(spec.resources.nodes, 2) << "PET_NNODES";
}

TEST(TorchrunFlagsTest, WhatIsTrueOfTheCallersMachineStaysThere) {
  TorchrunSurroundings with = Surroundings();
  for (const char* name :
       {"HOSTNAME", "TMPDIR", "XDG_RUNTIME_DIR", "SLURM_NTASKS", "SLURM_NODELIST",
        "SLURM_STEP_NODELIST", "SRUN_DEBUG", "PMI_RANK", "OLDPWD", "GRPC_SSL_CIPHER_SUITES"})
    with.environment[name] = "x";
  with.environment["SLURM_JOB_NAME"] = "chat";
  const Variables expected = {
      {"HF_HOME", "/models"}, {"SLURM_JOB_NAME", "chat"}, {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"}};
  EXPECT_EQ(SpecOf({"train.py"}, with).env, expected);
}

TEST(TorchrunFlagsTest, ARunsIdGoesToTheRanksAndTheCallersDoesNot) {
  TorchrunSurroundings with = Surroundings();
  EXPECT_EQ(SpecOf({"--rdzv-id=chat 7", "a.py"}, with).env.at("TORCHELASTIC_RUN_ID"), "chat 7");
  EXPECT_FALSE(SpecOf({"a.py"}, with).env.contains("TORCHELASTIC_RUN_ID"));
  with.environment["TORCHELASTIC_RUN_ID"] = "outer";
  with.environment["TORCHELASTIC_ERROR_FILE"] = "/x";
  const TorchrunJob job = Make({"a.py"}, with).value();
  EXPECT_THAT(job.notes,
              ElementsAre(HasSubstr("TORCHELASTIC_ERROR_FILE, TORCHELASTIC_RUN_ID: left out")));
  EXPECT_FALSE(SpecOf({"a.py"}, with).env.contains("TORCHELASTIC_RUN_ID"));
}

TEST(TorchrunFlagsTest, FlagsAreWrittenAsArgparseReadsThem) {
  const Words spellings[] = {{"--nproc-per-node", "3", "a.py"},
                             {"--nproc_per_node", "3", "a.py"},
                             {"--nproc-per-node=3", "a.py"},
                             {"--nproc=3", "a.py"},
                             {"--nproc", "3", "--", "a.py"}};
  for (const Words& words : spellings) {
    EXPECT_EQ(SpecOf(words).resources.ranks_per_node, 3) << words.front();
  }
  for (const Words& words : {Words{"-m", "pkg.train"}, {"--module", "pkg.train"}}) {
    EXPECT_THAT(SpecOf(words).command, ElementsAre("/usr/bin/python3", "-u", "-m", "pkg.train"));
  }
  for (const Words& words :
       {Words{"-r", "3", "a.py"}, {"-r3", "a.py"}, {"-r=3", "a.py"}, {"-mr3", "a.py"}}) {
    EXPECT_THAT(Make(words).value().shown, IsEmpty()) << words.front();
  }
  // The command line counts before the variable.
  EXPECT_EQ(ParseTorchrunFlags({"--role=x", "a.py"}, {{"PET_ROLE", "y"}}).value().at("role"), "x");
  EXPECT_TRUE(ParseTorchrunFlags({"a.py"}, {{"PET_STANDALONE", "1"}}).value().on("standalone"));
  EXPECT_FALSE(ParseTorchrunFlags({"a.py"}, {{"PET_STANDALONE", "0"}}).value().on("standalone"));
  EXPECT_EQ(ParseTorchrunFlags({"a.py"}, {{"PET_LOGS_SPECS", "y"}}).value().at("logs-specs"), "");
}

TEST(TorchrunFlagsTest, WhatItCannotReadItRefusesByName) {
  EXPECT_THAT(Refusal({}), HasSubstr("no script is named"));
  EXPECT_THAT(Refusal({"--standalone"}), HasSubstr("no script is named"));
  EXPECT_THAT(Refusal({"--use-env", "a.py"}), HasSubstr("--use-env is no flag of torchrun"));
  EXPECT_THAT(Refusal({"-x", "a.py"}), HasSubstr("-x is no flag of torchrun"));
  EXPECT_THAT(Refusal({"--ma=1", "a.py"}),
              HasSubstr("--ma may be --max-restarts or --master-addr"));
  EXPECT_THAT(Refusal({"--nnodes", "--standalone", "a.py"}), HasSubstr("--nnodes needs a value"));
  EXPECT_THAT(Refusal({"--standalone=1", "a.py"}), HasSubstr("--standalone takes no value"));
  EXPECT_THAT(
      ParseTorchrunFlags({"--nnodes=2", "--queue=a", "a.py"}, {}, {"queue"}).status().message(),
      HasSubstr("--queue is a flag of muster run, and stands before torchrun's flags"));
}

TEST(TorchrunFlagsTest, TheHelpHasEveryFlagWithAReason) {
  const std::string help = TorchrunHelp();
  for (const TorchrunFlag& flag : TorchrunFlagTable()) {
    EXPECT_THAT(help, HasSubstr("--" + std::string(flag.name))) << flag.name;
    EXPECT_FALSE(flag.why.empty()) << flag.name;
  }
  EXPECT_THAT(help, HasSubstr("  -m,--module "));
  EXPECT_THAT(help, HasSubstr("  --nnodes VALUE "));
}

struct Row {
  const char* flag;
  Words words;
  TorchrunTreatment treatment;
  const char* says;  // of a note or a refusal
};

const Row kRows[] = {
    {"nnodes", {"--nnodes", "3"}, TorchrunTreatment::kTaken, ""},
    {"nproc-per-node", {"--nproc-per-node", "2"}, TorchrunTreatment::kTaken, ""},
    {"rdzv-backend", {"--rdzv-backend", "c10d"}, TorchrunTreatment::kNoted, "brings the ranks"},
    {"rdzv-endpoint", {"--rdzv-endpoint", "h:1"}, TorchrunTreatment::kNoted, "no endpoint"},
    {"rdzv-id", {"--rdzv-id", "x"}, TorchrunTreatment::kTaken, ""},
    {"rdzv-conf", {"--rdzv-conf", "timeout=9"}, TorchrunTreatment::kNoted, "brings the ranks"},
    {"standalone", {"--standalone"}, TorchrunTreatment::kTaken, ""},
    {"max-restarts", {"--max-restarts", "2"}, TorchrunTreatment::kTaken, ""},
    {"monitor-interval", {"--monitor-interval", "5"}, TorchrunTreatment::kNoted, "intervals"},
    {"start-method", {"--start-method", "fork"}, TorchrunTreatment::kNoted, "forked"},
    {"event-log-handler",
     {"--event-log-handler", "x"},
     TorchrunTreatment::kRefused,
     "muster events"},
    {"role", {"--role", "trainer"}, TorchrunTreatment::kRefused, "one role"},
    {"module", {"-m"}, TorchrunTreatment::kTaken, ""},
    {"no-python", {"--no-python"}, TorchrunTreatment::kTaken, ""},
    {"run-path", {"--run-path"}, TorchrunTreatment::kTaken, ""},
    {"log-dir", {"--log-dir", "/logs"}, TorchrunTreatment::kTaken, ""},
    {"redirects", {"--redirects", "3"}, TorchrunTreatment::kTaken, ""},
    {"tee", {"--tee", "3"}, TorchrunTreatment::kTaken, ""},
    {"local-ranks-filter", {"--local-ranks-filter", "0"}, TorchrunTreatment::kTaken, ""},
    {"duplicate-stdout-filters",
     {"--duplicate-stdout-filters", "a"},
     TorchrunTreatment::kRefused,
     "muster logs"},
    {"duplicate-stderr-filters",
     {"--duplicate-stderr-filters", "a"},
     TorchrunTreatment::kRefused,
     "muster logs"},
    {"node-rank", {"--node-rank", "0"}, TorchrunTreatment::kTaken, ""},
    {"master-addr", {"--master-addr", "h"}, TorchrunTreatment::kNoted, "rank 0 is placed"},
    {"master-port", {"--master-port", "1"}, TorchrunTreatment::kNoted, "port that is free"},
    {"local-addr", {"--local-addr", "h"}, TorchrunTreatment::kNoted, "muster-worker --address"},
    {"logs-specs", {"--logs-specs", "x"}, TorchrunTreatment::kRefused, "plug-in"},
    {"numa-binding", {"--numa-binding", "node"}, TorchrunTreatment::kRefused, "worker's matter"},
    {"signals-to-handle",
     {"--signals-to-handle", "SIGUSR1"},
     TorchrunTreatment::kRefused,
     "muster suspend"},
    {"virtual-local-rank", {"--virtual-local-rank"}, TorchrunTreatment::kRefused, "LOCAL_RANK"}};

TEST(TorchrunFlagsTest, EveryFlagIsTakenOrNotedOrRefusedWithASentence) {
  ASSERT_EQ(std::size(kRows), TorchrunFlagTable().size());
  for (std::size_t i = 0; i < std::size(kRows); ++i) {
    const Row& row = kRows[i];
    EXPECT_EQ(TorchrunFlagTable()[i].name, row.flag);
    Words words = row.words;
    words.push_back("train.py");
    if (row.treatment == TorchrunTreatment::kRefused) {
      EXPECT_THAT(Refusal(words), ::testing::AllOf(HasSubstr(row.flag), HasSubstr(row.says)));
      continue;
    }
    const Result<TorchrunJob> job = Make(words);
    ASSERT_TRUE(job.ok()) << row.flag << ": " << job.status().ToString();
    EXPECT_TRUE(ParseJobSpec(job->yaml).ok()) << job->yaml;
    if (row.treatment == TorchrunTreatment::kTaken) {
      EXPECT_THAT(job->notes, IsEmpty()) << row.flag;
    } else {
      EXPECT_THAT(job->notes, ElementsAre(HasSubstr(row.says))) << row.flag;
    }
  }
}

TEST(TorchrunJobTest, ARangeOfNodesIsAsManyAsThereAre) {
  TorchrunSurroundings with = Surroundings();
  for (const auto& [there, wanted] : std::map<int, int>{{0, 4}, {1, 2}, {3, 3}, {9, 4}}) {
    with.nodes = there;
    const Result<TorchrunJob> job = Make({"--nnodes", "2:4", "a.py"}, with);
    ASSERT_TRUE(job.ok()) << job.status().ToString();
    EXPECT_EQ(job->nodes, wanted) << there;
    EXPECT_THAT(job->notes, Contains(HasSubstr("cannot be formed again")));
  }
  for (const char* bad : {"0", "2:1", "x", "1:2:3", "", "20000", "1:"}) {
    EXPECT_THAT(Refusal({"--nnodes", bad, "a.py"}), HasSubstr("--nnodes: expected")) << bad;
  }
}

TEST(TorchrunJobTest, RanksPerNodeAreCountedAsTorchrunCountsThem) {
  EXPECT_EQ(SpecOf({"--nproc-per-node=cpu", "a.py"}).resources.ranks_per_node, 6);
  EXPECT_EQ(SpecOf({"--nproc-per-node=auto", "a.py"}).resources.ranks_per_node, 6);
  TorchrunSurroundings with = Surroundings();
  with.gpus = 8;
  for (const char* word : {"gpu", "auto"}) {
    const JobSpec spec = SpecOf({std::string("--nproc-per-node=") + word, "a.py"}, with);
    EXPECT_EQ(spec.resources.ranks_per_node, 8);
    EXPECT_EQ(spec.resources.device, "cuda");
    EXPECT_TRUE(spec.resources.sees_all_gpus) << "scripts choose theirs by LOCAL_RANK";
  }
  EXPECT_EQ(SpecOf({"--nproc-per-node=2", "a.py"}, with).resources.device, "cuda");
  EXPECT_EQ(SpecOf({"--nproc-per-node=cpu", "a.py"}, with).resources.device, "cpu");
  EXPECT_THAT(Refusal({"--nproc-per-node=gpu", "a.py"}), HasSubstr("a machine with GPUs"));
  for (const char* bad : {"xpu", "0", "-2", "65", "2.5"}) {
    EXPECT_THAT(Refusal({std::string("--nproc-per-node=") + bad, "a.py"}),
                HasSubstr("--nproc-per-node: expected"))
        << bad;
  }
}

TEST(TorchrunJobTest, WhatIsRunFollowsFromTheThreeSwitches) {
  TorchrunSurroundings with = Surroundings();
  with.environment["PYTHON_EXEC"] = "/venv/bin/python";
  EXPECT_THAT(SpecOf({"a.py", "-x"}, with).command,
              ElementsAre("/venv/bin/python", "-u", "a.py", "-x"));
  EXPECT_THAT(SpecOf({"--no-python", "./run.sh"}).command, ElementsAre("./run.sh"));
  EXPECT_THAT(SpecOf({"--no-python", "--run-path", "/a.py"}).command,
              ElementsAre("/usr/bin/python3", "-u", "/a.py"));
  EXPECT_THAT(Refusal({"--no-python", "-m", "pkg"}), HasSubstr("exclude each other"));
}

TEST(TorchrunJobTest, TheConsoleShowsWhatIsNotRedirectedOrFilteredAway) {
  const auto shown = [](Words words) {
    words.insert(words.begin(), "--nproc-per-node=3");
    words.push_back("a.py");
    return Make(words).value().shown;
  };
  EXPECT_THAT(shown({}), ElementsAre(0, 1, 2));
  EXPECT_THAT(shown({"-r", "3"}), IsEmpty());
  EXPECT_THAT(shown({"-r", "3", "-t", "3"}), ElementsAre(0, 1, 2));
  EXPECT_THAT(shown({"-r", "0:3,2:3"}), ElementsAre(1));
  EXPECT_THAT(shown({"-r", "3", "-t", "1:3"}), ElementsAre(1));
  EXPECT_THAT(shown({"--local-ranks-filter=0,2"}), ElementsAre(0, 2));
  EXPECT_THAT(Refusal({"-r", "1", "a.py"}), HasSubstr("both streams of a rank in one file"));
  for (const char* bad : {"4", "x", "0:x", "0:3,", "0:1", ":"}) {
    EXPECT_THAT(Refusal({"-t", bad, "a.py"}), HasSubstr("--tee: expected")) << bad;
  }
  EXPECT_THAT(Refusal({"--local-ranks-filter=a", "a.py"}), HasSubstr("--local-ranks-filter"));
}

TEST(TorchrunJobTest, OtherImpossibleValuesAreRefused) {
  EXPECT_THAT(
      Refusal({"--standalone", "--nnodes=2", "a.py"}),
      HasSubstr("has one node, this machine; for one node leave --nnodes out, for several"));
  EXPECT_THAT(Refusal({"--max-restarts=-1", "a.py"}), HasSubstr("--max-restarts: expected"));
  EXPECT_THAT(Refusal({"--max-restarts=many", "a.py"}), HasSubstr("--max-restarts: expected"));
  EXPECT_THAT(Refusal({"--node-rank=1", "a.py"}), HasSubstr("one call starts the ranks of all"));
  EXPECT_THAT(Refusal({"--node-rank=x", "a.py"}), HasSubstr("--node-rank: expected"));
  TorchrunSurroundings with = Surroundings();
  with.environment["OMP_NUM_THREADS"] = "4,2";
  EXPECT_THAT(Refusal({"a.py"}, with), HasSubstr("OMP_NUM_THREADS: expected"));
}

}  // namespace
}  // namespace muster
