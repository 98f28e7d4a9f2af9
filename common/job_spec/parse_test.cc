#include "common/job_spec/parse.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "common/base/files.h"

namespace muster {
namespace {

constexpr char kWhole[] = R"(name: llama-chat
resources:
  nodes: 2
  ranks_per_node: 8
  device: cpu
  min_nodes: 1
  spares: 3
  share_spares: true
  cpus_per_rank: 8
  cpu_binding: none
  exclude: [n7, "8"]
  time_limit: 1h30m
priority: 70
queue: team-a
class: high
begin: 2026-11-28T06:00:00Z
hold: true
restart: {max_without_progress: 5, in_place: false, standbys: 0}
on_event: {kinds: [failed], webhook: "https://host:80/x"}
env: {NCCL_DEBUG: WARN, COUNT: 3, EMPTY: ""}
workdir: /jobs/one
container:
  image: /roots/a/
  mounts: [/data, "/models:/m", "/rows/.:ro", "/x:/y/:rw"]
train:
  model: {path: models/base}
  init_from: null
  lora: null
  data: {train: rows.jsonl, max_seq_len: 512, packing: false, chat_template: chatml, shuffle: false}
  fsdp: {strategy: full_shard, mixed_precision: fp32, activation_checkpointing: none, cpu_offload: false}
  optimizer: {lr: 1e-3, betas: [0.8, 0], eps: 1.0e-6, weight_decay: 0, grad_clip: 0.5, master_weights: fp32}
  schedule: {kind: constant, warmup_ratio: 0.1, max_steps: 500}
  batch: {per_rank: 4, accumulation: 2}
  deterministic: true
  logging: {every: 5}
  checkpoint: {every: 20, keep: 2}
  snapshot: {every: 4, buddy: on}
  output: {dir: results}
  seed: 18446744073709551615
)";

constexpr char kSmall[] = R"(name: small
train:
  model: {path: base}
  data: {train: rows.jsonl}
  schedule: {max_steps: 10}
)";

std::string WithVariables(int count) {
  std::string yaml = "name: j\ncommand: [a]\nenv:\n";
  for (int i = 0; i < count; ++i) yaml += "  V" + std::to_string(i) + ": x\n";
  return yaml;
}

TEST(ParseJobSpec, TakesAsManyKeysAsAJobFileMayHave) {
  const auto spec = ParseJobSpec(WithVariables(4096 - 3));
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  EXPECT_EQ(spec->env.size(), 4096u - 3);
}

TEST(ParseJobSpec, ReadsWhatAJobAsksOfItsNodes) {
  const auto spec = ParseJobSpec(R"(name: j
command: [python, train.py]
resources:
  ranks_per_node: 2
  device: cuda
  gpus_per_rank: 4
  gpu: {kind: [H100, H200], memory: ">=80GB"}
  memory_per_rank: 64GB
  labels: {pool: a, zone: [x, y], rack: {not_in: [r1]}, ssd: {exists: true}, old: {exists: false}}
  topology: {within: rack, required: false}
)");
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  using Kind = LabelRule::Kind;
  EXPECT_EQ(
      spec->resources.per_node(),
      (NodeDemand{
          .ranks = 2,
          .devices = {.per_rank = 4, .kinds = {"H100", "H200"}, .min_memory_bytes = 80'000'000'000},
          .memory_per_rank = 64'000'000'000,
          .labels = {{"pool", Kind::kIn, {"a"}},
                     {"zone", Kind::kIn, {"x", "y"}},
                     {"rack", Kind::kNotIn, {"r1"}},
                     {"ssd", Kind::kExists, {}},
                     {"old", Kind::kAbsent, {}}},
          .topology = {.within = TopologyLevel::kRack, .required = false}}));
}

TEST(ParseJobSpec, ARankOfAGpuJobHasOneGpuUnlessItSaysOtherwise) {
  const auto cuda = ParseJobSpec("name: j\ncommand: [x]\nresources: {device: cuda}\n");
  EXPECT_EQ(cuda->resources.gpus.per_rank, 1);
  EXPECT_EQ(ParseJobSpec("name: j\ncommand: [x]\n")->resources.gpus.per_rank, 0);
}

// Each of them was compared with all before it: about a minute for 1 MiB.
// yaml-cpp reads an empty document there, and another one, without end.
TEST(ParseJobSpec, AStrayCommaIsRefused) {
  for (const char* yaml : {",aM", "name: a\n---\n,b", ",", "]", "}", "name: a\n... ,"})
    EXPECT_EQ(ParseJobSpec(yaml).status().code(), StatusCode::kInvalidArgument) << yaml;
}

TEST(ParseJobSpec, AMebibyteOfKeysIsRefusedWhereTheyAreTooMany) {
  std::string yaml = WithVariables(85000);
  ASSERT_LT(yaml.size(), 1u << 20);
  yaml += "]";  // what comes later is not read: it is no YAML
  const auto spec = ParseJobSpec(yaml, "job.yaml");
  ASSERT_FALSE(spec.ok());
  EXPECT_EQ(spec.status().message(),
            "job.yaml:4097: more than 4096 keys, the most that a job file may have");
}

TEST(ParseJobSpec, CountsKeysWhereverTheyAre) {
  std::string yaml = "name: j\nexclude:\n";
  for (int i = 0; i < 2048; ++i) yaml += "  - {a: [1, 2], {b: &x c}: d, ? e}\n";
  const auto spec = ParseJobSpec(yaml, "job.yaml");
  ASSERT_FALSE(spec.ok());
  EXPECT_EQ(spec.status().message(),
            "job.yaml:1026: more than 4096 keys, the most that a job file may have");
}

TEST(ParseJobSpec, RefusesOneKeyTooManyInEachNotation) {
  std::string flow = "{", block, complex;
  for (int i = 0; i <= 4096; ++i) {
    const std::string key = "k" + std::to_string(i);
    flow += (i == 0 ? "" : ",") + key;
    block += key + ":\n";
    complex += "? " + key + "\n";
  }
  for (const std::string& yaml : {flow + "}", block, complex})
    EXPECT_NE(ParseJobSpec(yaml).status().message().find("more than 4096 keys"), std::string::npos);
}

TEST(ParseJobSpec, ReadsThePeakOfADevice) {
  const auto spec = ParseJobSpec("name: j\ncommand: [a]\nresources: {peak_tflops: 312.5}\n");
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  EXPECT_EQ(spec->resources.peak_tflops, 312.5);
}

TEST(ParseJobSpec, ReadsEveryKey) {
  const auto spec = ParseJobSpec(kWhole, "job.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  EXPECT_EQ(spec->name, "llama-chat");
  EXPECT_EQ(spec->resources.nodes, 2);
  EXPECT_EQ(spec->world_size(), 16);
  EXPECT_EQ(spec->resources.cpus_per_rank, 8);
  EXPECT_EQ(spec->resources.cpu_binding, "none");
  EXPECT_EQ(spec->resources.exclude, (std::vector<std::string>{"n7", "8"}));
  EXPECT_EQ(spec->resources.time_limit_seconds, 5400);
  EXPECT_EQ(spec->priority, 70);
  EXPECT_EQ(spec->queue, "team-a");
  EXPECT_EQ(spec->priority_class, "high");
  EXPECT_EQ(spec->begin, "2026-11-28T06:00:00Z");
  EXPECT_TRUE(spec->hold);
  EXPECT_EQ(spec->restart.max_without_progress, 5);
  EXPECT_FALSE(spec->restart.in_place);
  EXPECT_EQ(spec->restart.standbys, 0);
  EXPECT_EQ(spec->min_nodes(), 1);
  EXPECT_EQ(spec->resources.spares, 3);
  EXPECT_TRUE(spec->resources.share_spares);
  EXPECT_EQ(spec->on_event.kinds, (std::vector<std::string>{"failed"}));
  EXPECT_EQ(spec->on_event.webhook, "https://host:80/x");
  EXPECT_EQ(spec->train->snapshot.every, 4);
  EXPECT_EQ(spec->train->snapshot.buddy, BuddyCopies::kOn);
  EXPECT_EQ(spec->env, (std::map<std::string, std::string>{
                           {"NCCL_DEBUG", "WARN"}, {"COUNT", "3"}, {"EMPTY", ""}}));
  EXPECT_EQ(spec->workdir, "/jobs/one");
  EXPECT_EQ(spec->container,
            (ContainerSpec{
                "/roots/a",
                {{"/data", "/data"}, {"/models", "/m"}, {"/rows", "/rows", true}, {"/x", "/y"}}}));
  ASSERT_TRUE(spec->train.has_value());
  const TrainSpec& train = *spec->train;
  EXPECT_EQ(train.model.path, "models/base");
  EXPECT_EQ(train.data.train, std::vector<std::string>{"rows.jsonl"});
  EXPECT_EQ(train.data.max_seq_len, 512);
  EXPECT_EQ(train.data.chat_template, "chatml");
  EXPECT_FALSE(train.data.shuffle);
  EXPECT_EQ(train.fsdp.mixed_precision, MixedPrecision::kFp32);
  EXPECT_DOUBLE_EQ(train.optimizer.lr, 1e-3);
  EXPECT_DOUBLE_EQ(train.optimizer.beta1, 0.8);
  EXPECT_DOUBLE_EQ(train.optimizer.beta2, 0);
  EXPECT_DOUBLE_EQ(train.optimizer.eps, 1e-6);
  EXPECT_DOUBLE_EQ(train.optimizer.weight_decay, 0);
  EXPECT_DOUBLE_EQ(train.optimizer.grad_clip, 0.5);
  EXPECT_EQ(train.schedule.kind, "constant");
  EXPECT_DOUBLE_EQ(train.schedule.warmup_ratio, 0.1);
  EXPECT_EQ(train.schedule.max_steps, 500);
  EXPECT_EQ(train.batch.per_rank, 4);
  EXPECT_EQ(train.batch.accumulation, 2);
  EXPECT_EQ(train.logging_every, 5);
  EXPECT_EQ(train.checkpoint.every, 20);
  EXPECT_EQ(train.checkpoint.keep, 2);
  EXPECT_EQ(train.output_dir, "results");
  EXPECT_EQ(train.seed, 18446744073709551615u);
  EXPECT_EQ(OutputDirectory(*spec, {"0123456789"}), "/jobs/one/results");
}

TEST(ParseJobSpec, FillsDefaults) {
  const auto spec = ParseJobSpec(kSmall);
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  EXPECT_EQ(spec->world_size(), 1);
  EXPECT_EQ(spec->train->fsdp.mixed_precision, MixedPrecision::kBf16);
  EXPECT_DOUBLE_EQ(spec->train->optimizer.lr, 5e-5);
  EXPECT_EQ(spec->train->seed, 42u);
}

TEST(ParseJobSpec, TakesRowsOfTextAndOfTokenIds) {
  for (const std::string file : {"rows.jsonl", "rows.json.gz", "rows.npy", "rows.bin", "rows",
                                 "../some.rows/", "../rows", ".rows"}) {
    const auto spec = ParseJobSpec("name: j\ntrain: {model: {path: m}, data: {train: " + file +
                                   "}, schedule: {epochs: 1}}\n");
    ASSERT_TRUE(spec.ok()) << spec.status().ToString();
    EXPECT_EQ(spec->train->data.train, std::vector<std::string>{file});
  }
}

TEST(ParseJobSpec, ReadsACommandJob) {
  const auto spec = ParseJobSpec(
      "name: c\nworkdir: /w/.\ncommand: [python, train.py, --lr, 0.1, \"a\\nb\"]\nrendezvous: "
      "rank0\npreemptible: true\n");
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  EXPECT_TRUE(spec->preemptible);
  EXPECT_EQ(spec->command, (std::vector<std::string>{"python", "train.py", "--lr", "0.1", "a\nb"}));
  EXPECT_EQ(spec->rendezvous, RendezvousKind::kRank0);
  EXPECT_FALSE(spec->train.has_value());
  EXPECT_EQ(OutputDirectory(*spec, {"0123456789"}), "/w/muster-c-0123456789");
}

// One line of the small job replaced or added, and what is said about it.
struct BadCase {
  const char* name;
  const char* yaml;
  const char* message;
};

void PrintTo(const BadCase& bad, std::ostream* out) { *out << bad.name; }

class BadJobFile : public testing::TestWithParam<BadCase> {};

TEST_P(BadJobFile, IsRefusedWithLineAndKey) {
  const auto spec = ParseJobSpec(GetParam().yaml, "job.yaml");
  ASSERT_FALSE(spec.ok());
  EXPECT_EQ(spec.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(spec.status().message(), GetParam().message);
}

#define TRAIN_HEAD                                                              \
  "name: j\ntrain:\n  model: {path: m}\n  data: {train: d.jsonl}\n  schedule: " \
  "{max_steps: 1}\n"
#define COMMAND_HEAD "name: j\ncommand: [a]\n"
#define LORA_TARGETS                                                                              \
  "job.yaml:6: train.lora.target_modules: must be all-linear or a list of q_proj, k_proj, "       \
  "v_proj, qkv_proj, o_proj, gate_proj, up_proj, gate_up_proj, down_proj, "                       \
  "shared_expert.gate_proj, shared_expert.up_proj, shared_expert.down_proj, shared_expert_gate, " \
  "mlp.experts.gate_up_proj, mlp.experts.down_proj"

const BadCase kContainerCases[] = {
    {"NoImage", COMMAND_HEAD "container: {}\n",
     "job.yaml:3: container.image: is missing; name the image, or give the absolute path of an "
     "unpacked root"},
    {"RelativeRoot", COMMAND_HEAD "container: {image: ./root}\n",
     "job.yaml:3: container.image: expected an image's name or the absolute path of an unpacked "
     "root, got './root'"},
    {"NodesOwnRoot", COMMAND_HEAD "container: {image: //}\n",
     "job.yaml:3: container.image: is not the path of an unpacked root"},
    {"Scheme", COMMAND_HEAD "container: {image: \"docker://a\"}\n",
     "job.yaml:3: container.image: leave the scheme out: images are named as in `podman images`"},
    {"OptionForImage", COMMAND_HEAD "container: {image: --all}\n",
     "job.yaml:3: container.image: is no name of an image, such as "
     "docker.io/pytorch/pytorch:2.11.0"},
    {"RelativeMount", COMMAND_HEAD "container: {image: a, mounts: [\"data:/d\"]}\n",
     "job.yaml:3: container.mounts: expected SOURCE[:TARGET][:ro] of absolute paths, got "
     "'data:/d'"},
    {"MountOverTheRoot", COMMAND_HEAD "container: {image: a, mounts: [\"/d:/\"]}\n",
     "job.yaml:3: container.mounts: expected SOURCE[:TARGET][:ro] of absolute paths, got '/d:/'"},
    {"MountUpwards", COMMAND_HEAD "container: {image: a, mounts: [\"/d:/a/../..\"]}\n",
     "job.yaml:3: container.mounts: expected SOURCE[:TARGET][:ro] of absolute paths, got "
     "'/d:/a/../..'"},
    {"MountOfFourParts", COMMAND_HEAD "container: {image: a, mounts: [\"/d:/e:/f:ro\"]}\n",
     "job.yaml:3: container.mounts: expected SOURCE[:TARGET][:ro] of absolute paths, got "
     "'/d:/e:/f:ro'"},
    {"TwoAtOnePlace", COMMAND_HEAD "container: {image: a, mounts: [/d, \"/e:/d/\"]}\n",
     "job.yaml:3: container.mounts: two mounts at /d"},
};
const BadCase kShapeCases[] = {
    {"Empty", "", "job.yaml:1: the job file is empty; docs/job-file.md shows one"},
    {"List", "[1]", "job.yaml:1: expected a map of keys such as name: and train:"},
    {"NoYaml", "name: [a\ntrain: b: c",
     "job.yaml:2: is no valid YAML: end of sequence flow not found"},
    {"TwoDocuments", COMMAND_HEAD "---\nname: k\n",
     "job.yaml:4: a second document; a job file has one"},
    {"ControlCharacter", "name: a\x1b[31m\n",
     "job.yaml:1: control characters are not allowed in a job file"},
    {"NotUtf8", "name: j\ncommand: [echo, \"\xff\"]\n", "job.yaml:2: is not UTF-8"},
    {"EscapedControlCharacter", "name: \"a\\e[31m\"\ncommand: [a]\n",
     "job.yaml:1: name: control characters are not allowed"},
    {"EscapedControlCharacterInALabelsName",
     COMMAND_HEAD "resources:\n  labels: {\"a\\e[31m\": x}\n",
     "job.yaml:4: resources.labels.a?[31m: control characters are not allowed"},
    {"EscapedControlCharacterInANameOfAFlag",
     COMMAND_HEAD "resources:\n  labels:\n    \"a\\nb\": {exists: true}\n",
     "job.yaml:5: resources.labels.a?b: control characters are not allowed"},
    {"Unknown", COMMAND_HEAD "prioritty: 3\n",
     "job.yaml:3: prioritty: unknown key; did you mean 'priority'?"},
    {"UnknownWithoutNeighbour", COMMAND_HEAD "zebra: 3\n", "job.yaml:3: zebra: unknown key"},
    {"UnknownDeep", TRAIN_HEAD "  optimizer:\n    learning: 3\n",
     "job.yaml:7: train.optimizer.learning: unknown key"},
    {"Duplicate", "name: j\ncommand: [a]\nname: k\n",
     "job.yaml:3: name: is given twice; the first one is on line 1"},
    {"DuplicateDeep", TRAIN_HEAD "  optimizer:\n    lr: 1\n    lr: 2\n",
     "job.yaml:8: train.optimizer.lr: is given twice; the first one is on line 7"},
    {"EarliestLineWins", "name: j\npriority: high\ncommand: [a]\nzebra: 1\n",
     "job.yaml:2: priority: expected a whole number, got 'high'"},
    {"SectionIsScalar", "name: j\ntrain: 5\n", "job.yaml:2: train: expected a map, got 5"},
    {"SectionIsEmpty", "name: j\ntrain:\n", "job.yaml:2: train: expected a map, got nothing"},
};

const BadCase kTypeCases[] = {
    {"NoName", "command: [a]\n",
     "job.yaml:1: name: is missing; give the job a name such as name: llama-chat"},
    {"NameIsNumber", "name: 12\ncommand: [a]\n",
     "job.yaml:1: name: expected a text, got 12; put it in quotes"},
    {"NameWithSlash", "name: ../x\ncommand: [a]\n",
     "job.yaml:1: name: expected 1 to 63 letters, digits, '-', '_' or '.', got '../x'"},
    {"NumberIsText", TRAIN_HEAD "  optimizer: {lr: fast}\n",
     "job.yaml:6: train.optimizer.lr: expected a number, got 'fast'"},
    {"NumberIsQuoted", TRAIN_HEAD "  optimizer: {lr: '0.1'}\n",
     "job.yaml:6: train.optimizer.lr: expected a number, got '0.1'"},
    {"NumberIsList", TRAIN_HEAD "  optimizer: {lr: [1]}\n",
     "job.yaml:6: train.optimizer.lr: expected a number, got a list"},
    {"IntegerIsFraction", "name: j\ncommand: [a]\nresources: {nodes: 1.5}\n",
     "job.yaml:3: resources.nodes: expected a whole number, got 1.5"},
    {"IntegerIsHuge", "name: j\ncommand: [a]\nresources: {nodes: 99999999999999999999}\n",
     "job.yaml:3: resources.nodes: must be from 1 to 16384, got 99999999999999999999"},
    {"BooleanIsYes",
     "name: j\ntrain:\n  model: {path: m}\n  data: {train: d.jsonl, shuffle: yes}\n"
     "  schedule: {max_steps: 1}\n",
     "job.yaml:4: train.data.shuffle: expected true or false, got 'yes'"},
    {"CommandIsText", "name: j\ncommand: python train.py\n",
     "job.yaml:2: command: expected a list such as [a, b], got 'python train.py'"},
    {"CommandIsEmpty", "name: j\ncommand: []\n",
     "job.yaml:2: command: expected a program and its arguments, such as [python, train.py]"},
    {"Duration", "name: j\ncommand: [a]\nresources: {time_limit: soon}\n",
     "job.yaml:3: resources.time_limit: expected a duration such as 12h, 90m or 30s, got 'soon'"},
    {"DurationWithoutUnit", "name: j\ncommand: [a]\nresources: {time_limit: 30}\n",
     "job.yaml:3: resources.time_limit: expected a duration such as 12h, 90m or 30s, got 30"},
    {"EmptyPath",
     "name: j\ntrain:\n  model: {path: ''}\n  data: {train: d.jsonl}\n  schedule: "
     "{max_steps: 1}\n",
     "job.yaml:3: train.model.path: must not be empty"},
};

const BadCase kRangeCases[] = {
    {"ZeroNodes", "name: j\ncommand: [a]\nresources: {nodes: 0}\n",
     "job.yaml:3: resources.nodes: must be from 1 to 16384, got 0"},
    {"ZeroLr", TRAIN_HEAD "  optimizer: {lr: 0}\n",
     "job.yaml:6: train.optimizer.lr: must be above 0, got 0"},
    {"InfiniteLr", TRAIN_HEAD "  optimizer: {lr: 1e999}\n",
     "job.yaml:6: train.optimizer.lr: expected a number, got '1e999'"},
    {"Beta", TRAIN_HEAD "  optimizer: {betas: [0.9, 1]}\n",
     "job.yaml:6: train.optimizer.betas: each must be at least 0 and below 1, got 1"},
    {"OneBeta", TRAIN_HEAD "  optimizer: {betas: [0.9]}\n",
     "job.yaml:6: train.optimizer.betas: expected two numbers such as [0.9, 0.95]"},
    {"Priority", COMMAND_HEAD "priority: 101\n",
     "job.yaml:3: priority: must be from 0 to 100, got 101"},
    {"Queue", COMMAND_HEAD "queue: a b\n",
     "job.yaml:3: queue: expected 1 to 63 letters, digits, '-', '_' or '.', got 'a b'"},
    {"Class", COMMAND_HEAD "class: -high\n",
     "job.yaml:3: class: expected 1 to 63 letters, digits, '-', '_' or '.', got '-high'"},
    {"Begin", COMMAND_HEAD "begin: tomorrow\n",
     "job.yaml:3: begin: expected a time such as 2026-11-28T06:00 (local), 2026-11-28T05:00:00Z, "
     "2026-11-28 or now+2h, got 'tomorrow'"},
    {"Hold", COMMAND_HEAD "hold: yes\n", "job.yaml:3: hold: expected true or false, got 'yes'"},
    {"TimeLimit", COMMAND_HEAD "resources: {time_limit: 36501d}\n",
     "job.yaml:3: resources.time_limit: expected a duration such as 12h, 90m or 30s, got '36501d'"},
    {"KeepZero", TRAIN_HEAD "  checkpoint: {keep: 0}\n",
     "job.yaml:6: train.checkpoint.keep: must be from 1 to 1000, got 0"},
    {"NegativeSeed", TRAIN_HEAD "  seed: -1\n",
     "job.yaml:6: train.seed: must be from 0 to 18446744073709551615, got -1"},
};

const BadCase kChoiceCases[] = {
    {"EvalWithoutRows", TRAIN_HEAD "  eval: {every: 100}\n",
     "job.yaml:6: train.eval: needs rows to evaluate on: give data.eval or data.eval_ratio"},
    {"ExportWithoutRows", TRAIN_HEAD "  output: {export: best}\n",
     "job.yaml:6: train.output.export: best needs evaluations: give data.eval or data.eval_ratio"},
    {"ExportWord", TRAIN_HEAD "  output: {export: newest}\n",
     "job.yaml:6: train.output.export: expected last or best, got 'newest'"},
    {"MisspeltCommand", "name: j\ncommnd: [a]\n",
     "job.yaml:2: commnd: unknown key; did you mean 'command'?"},
    {"Neither", "name: j\n",
     "job.yaml:1: train: is missing; give train (the built-in trainer) or command (a program of "
     "yours)"},
    {"Both", TRAIN_HEAD "command: [a]\n",
     "job.yaml:6: command: give either train or command, not both"},
    {"StepsAndEpochs",
     "name: j\ntrain:\n  model: {path: m}\n  data: {train: d.jsonl}\n  schedule: "
     "{max_steps: 1, epochs: 2}\n",
     "job.yaml:5: train.schedule.epochs: give either max_steps or epochs, not both"},
    {"NoSteps",
     "name: j\ntrain:\n  model: {path: m}\n  data: {train: d.jsonl}\n  schedule: "
     "{kind: cosine}\n",
     "job.yaml:5: train.schedule.max_steps: is missing; give max_steps or epochs"},
    {"NoModel", "name: j\ntrain:\n  data: {train: d.jsonl}\n  schedule: {max_steps: 1}\n",
     "job.yaml:3: train.model: is missing; give the Hugging Face directory as model: {path: DIR}"},
    {"RendezvousOfTrain", TRAIN_HEAD "rendezvous: agent\n",
     "job.yaml:6: rendezvous: is only for command jobs; leave it out"},
    {"RendezvousKind", COMMAND_HEAD "rendezvous: etcd\n",
     "job.yaml:3: rendezvous: expected agent or rank0, got 'etcd'"},
    {"RankVariable", COMMAND_HEAD "env: {A: b, MASTER_PORT: 1}\n",
     "job.yaml:3: env.MASTER_PORT: is set by muster for every rank and must not be overridden"},
    {"MusterVariable", COMMAND_HEAD "env:\n  MUSTER_JOB_ID: x\n",
     "job.yaml:4: env.MUSTER_JOB_ID: is set by muster for every rank and must not be overridden"},
    {"Threads", COMMAND_HEAD "env: {OMP_NUM_THREADS: 4}\n",
     "job.yaml:3: env.OMP_NUM_THREADS: is set by muster for every rank; use "
     "resources.cpus_per_rank"},
    {"NoPeak", COMMAND_HEAD "resources: {peak_tflops: 0}\n",
     "job.yaml:3: resources.peak_tflops: must be above 0, got 0"},
    {"VariableName", COMMAND_HEAD "env: {'A=B': 4}\n",
     "job.yaml:3: env.A=B: is no name of an environment variable"},
    {"SecretWithout", COMMAND_HEAD "secrets: [{env: A}]\n",
     "job.yaml:3: secrets[0].name: is missing; the name by which 'muster secret set' stored it"},
    {"SecretTwice", COMMAND_HEAD "env: {A: b}\nsecrets: [{name: s, env: A}]\n",
     "job.yaml:4: secrets[0].env: A is set twice"},
    {"SecretTwoWays", COMMAND_HEAD "secrets: [{name: s, env: A, file: B}]\n",
     "job.yaml:3: secrets[0].file: give either env or file: the variable that has the value, or a "
     "file's path"},
    {"SecretOfMuster", COMMAND_HEAD "secrets: [{name: s, file: RANK}]\n",
     "job.yaml:3: secrets[0].file: is set by muster for every rank and must not be overridden"},
    {"SecretsAreAList", COMMAND_HEAD "secrets: {A: s}\n",
     "job.yaml:3: secrets: expected a list such as [{name: hf, env: HF_TOKEN}]"},
    {"RowFile",
     "name: j\ntrain:\n  model: {path: m}\n  data: {train: d.parquet}\n  "
     "schedule: {max_steps: 1}\n",
     "job.yaml:4: train.data.train: Parquet is not read, got 'd.parquet'; write its rows as .jsonl "
     "once, for example with pandas: read_parquet(FILE).to_json(OUT, orient='records', "
     "lines=True)"},
};

const BadCase kLaterCases[] = {
    {"Device", COMMAND_HEAD "resources: {device: tpu}\n",
     "job.yaml:3: resources.device: expected cpu or cuda, got 'tpu'"},
    {"VisibleGpus", COMMAND_HEAD "resources: {visible_gpus: all}\n",
     "job.yaml:3: resources.visible_gpus: expected own or node, got 'all'"},
    {"VisibleGpusOfATrainJob", TRAIN_HEAD "resources: {visible_gpus: node}\n",
     "job.yaml:6: resources: visible_gpus: node is only for command jobs; the trainer's ranks have "
     "a "
     "GPU each"},
    {"CpuBinding", COMMAND_HEAD "resources: {cpu_binding: cores}\n",
     "job.yaml:3: resources.cpu_binding: expected auto or none, got 'cores'"},
    {"MinNodes", COMMAND_HEAD "resources: {nodes: 2, min_nodes: 1}\n",
     "job.yaml:3: resources: min_nodes below nodes needs a train job: a command's ranks cannot be "
     "formed again with another number"},
    {"MinNodesAboveNodes", COMMAND_HEAD "resources: {nodes: 2, min_nodes: 3}\n",
     "job.yaml:3: resources.min_nodes: must not be more than nodes"},
    {"SharedWithoutSpares", COMMAND_HEAD "resources: {share_spares: true}\n",
     "job.yaml:3: resources.share_spares: needs resources.spares; say how many, or leave this out"},
    {"PreemptibleWithSpares", COMMAND_HEAD "resources: {spares: 1}\npreemptible: true\n",
     "job.yaml:4: preemptible: such a job gives way itself and has no spares; leave one of both "
     "out"},
    {"OnEventWithoutKinds", COMMAND_HEAD "on_event: {webhook: 'https://h/p'}\n",
     "job.yaml:3: on_event.kinds: is missing; name the kinds of events, for example [recovered, "
     "failed]"},
    {"OnEventWithoutWebhook", COMMAND_HEAD "on_event: {kinds: [failed]}\n",
     "job.yaml:3: on_event.webhook: is missing; give the URL that gets the events, "
     "http[s]://HOST[:PORT]/PATH"},
    {"OnEventCommand", COMMAND_HEAD "on_event: {kinds: [failed], command: [notify]}\n",
     "job.yaml:3: on_event.command: the coordinator runs no commands of job files; give a webhook, "
     "or pipe 'muster events JOB -f -o jsonl' into a program of yours where you run it"},
    {"OnEventWebhook", COMMAND_HEAD "on_event: {kinds: [failed], webhook: 'http://u@h/p'}\n",
     "job.yaml:3: on_event.webhook: 'http://u@h/p' is not a URL of the form "
     "http[s]://HOST[:PORT]/PATH"},
    {"SnapshotBuddy", TRAIN_HEAD "  snapshot: {buddy: maybe}\n",
     "job.yaml:6: train.snapshot.buddy: expected auto, on or off, got 'maybe'"},
    {"Memory", COMMAND_HEAD "resources: {memory_per_rank: much}\n",
     "job.yaml:3: resources.memory_per_rank: expected a size such as 5GB, 512MiB or a number of "
     "bytes, got 'much'"},
    {"MemoryBeyondAll", COMMAND_HEAD "resources: {memory_per_rank: 4194304TiB}\n",
     "job.yaml:3: resources.memory_per_rank: must be from 0 to 1024TiB"},
    {"GpusOfACpuJob", COMMAND_HEAD "resources: {gpus_per_rank: 2}\n",
     "job.yaml:3: resources.gpus_per_rank: needs device: cuda; add it, or leave this out"},
    {"GpuKindOfACpuJob", COMMAND_HEAD "resources: {gpu: {kind: [H100]}}\n",
     "job.yaml:3: resources.gpu: needs device: cuda; add it, or leave this out"},
    {"GpusOfATrainJob", TRAIN_HEAD "resources: {device: cuda, gpus_per_rank: 2}\n",
     "job.yaml:6: resources: gpus_per_rank above 1 is only for command jobs; each rank of the "
     "trainer has one GPU"},
    {"GpusOfANode", COMMAND_HEAD "resources: {device: cuda, ranks_per_node: 9, gpus_per_rank: 8}\n",
     "job.yaml:3: resources.gpus_per_rank: times ranks_per_node is more than the 64 GPUs of a "
     "node"},
    {"GpuMemory", COMMAND_HEAD "resources: {device: cuda, gpu: {memory: '<80GB'}}\n",
     "job.yaml:3: resources.gpu.memory: expected the least memory of a GPU such as '>=80GB', got "
     "'<80GB'"},
    {"LabelRule", COMMAND_HEAD "resources: {labels: {pool: {in: [a]}}}\n",
     "job.yaml:3: resources.labels.pool: expected a value, a list of values, {not_in: LIST}, or "
     "{exists: true}"},
    {"EmptyLabelList", COMMAND_HEAD "resources: {labels: {pool: []}}\n",
     "job.yaml:3: resources.labels.pool: expected a list with a value in it"},
    {"TopologyWithin", COMMAND_HEAD "resources: {topology: {within: room}}\n",
     "job.yaml:3: resources.topology.within: expected block, rack or switch, got 'room'"},
    {"TopologyOfNothing", COMMAND_HEAD "resources: {topology: {required: false}}\n",
     "job.yaml:3: resources.topology.within: is missing; give block, rack, or switch"},
    {"LoraTarget", TRAIN_HEAD "  lora: {target_modules: [q_proj, lm_head]}\n",
     LORA_TARGETS ", got 'lm_head'; modules_to_save trains it "
                  "whole"},
    {"LoraWord", TRAIN_HEAD "  lora: {target_modules: all}\n", LORA_TARGETS ", got 'all'"},
    {"LoraRouter", TRAIN_HEAD "  lora: {target_modules: [mlp.gate]}\n",
     LORA_TARGETS ", got 'mlp.gate'; routers stay frozen "
                  "beside adapters"},
    {"LoraNothing", TRAIN_HEAD "  lora: {target_modules: []}\n",
     "job.yaml:6: train.lora.target_modules: names no module; an adapter has one at least"},
    {"LoraRank", TRAIN_HEAD "  lora: {r: 0}\n",
     "job.yaml:6: train.lora.r: must be from 1 to 4096, got 0"},
    {"LoraInitFrom", TRAIN_HEAD "  init_from: old\n  lora: {r: 8}\n",
     "job.yaml:6: train.init_from: does not go with lora; lora.init_from takes an adapter"},
    {"Deterministic", TRAIN_HEAD "  deterministic: false\n",
     "job.yaml:6: train.deterministic: not supported in this version: training is always "
     "deterministic; leave it out"},
    {"HubId",
     "name: j\ntrain:\n  model: {path: 'hf://meta/x'}\n  data: {train: d.jsonl}\n  "
     "schedule: {max_steps: 1}\n",
     "job.yaml:3: train.model.path: expected a directory or a name on the Hugging Face Hub, such "
     "as "
     "ORG/NAME or ORG/NAME@REVISION, got 'hf://meta/x'"},
};

std::string CaseName(const testing::TestParamInfo<BadCase>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Shape, BadJobFile, testing::ValuesIn(kShapeCases), CaseName);
INSTANTIATE_TEST_SUITE_P(Type, BadJobFile, testing::ValuesIn(kTypeCases), CaseName);
INSTANTIATE_TEST_SUITE_P(Range, BadJobFile, testing::ValuesIn(kRangeCases), CaseName);
INSTANTIATE_TEST_SUITE_P(Choice, BadJobFile, testing::ValuesIn(kChoiceCases), CaseName);
INSTANTIATE_TEST_SUITE_P(Later, BadJobFile, testing::ValuesIn(kLaterCases), CaseName);
INSTANTIATE_TEST_SUITE_P(Container, BadJobFile, testing::ValuesIn(kContainerCases), CaseName);

TEST(ParseJobSpec, RefusesDeepNestingWithoutCrashing) {
  const auto spec = ParseJobSpec("name: " + std::string(100'000, '['));
  EXPECT_FALSE(spec.ok());
}

TEST(ParseJobSpec, ParsesEveryExampleOfTheRepository) {
  int seen = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(MUSTER_SOURCE_DIR) + "/configs/jobs")) {
    if (entry.path().extension() != ".yaml") continue;
    const auto text = ReadFile(entry.path().string());
    ASSERT_TRUE(text.ok());
    const auto spec = ParseJobSpec(*text, entry.path().filename().string());
    EXPECT_TRUE(spec.ok()) << spec.status().ToString();
    ++seen;
  }
  EXPECT_GE(seen, 2);
}

}  // namespace
}  // namespace muster
