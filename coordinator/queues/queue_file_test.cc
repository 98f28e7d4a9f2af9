#include "coordinator/queues/queue_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <string>
#include <vector>

namespace muster {
namespace {

using ::testing::HasSubstr;

constexpr char kWhole[] = R"(half_life: 3d
classes: {urgent: 100, scavenger: -100, normal: 0}
preemption: {after: 5m, every: 2h}
queues:
  research:
    guarantee: {gpus: 64}
    ceiling: {gpus: 128, slots: 512}
    weight: 2.5
    time_limit: 2d
    priority: 60
    queues:
      vision: {guarantee: {gpus: 32}, ceiling: {gpus: 64}, time_limit: 12h}
      language: {priority: 70}
  production:
    queues:
      serving: {guarantee: {gpus: 8, slots: 4}}
      batch:
  default: {}
)";

QueueTree Parsed(const std::string& yaml) {
  auto tree = ParseQueueFile(yaml, "q.yaml");
  EXPECT_TRUE(tree.ok()) << tree.status().ToString();
  return tree.ok() ? *tree : QueueTree();
}

std::string ErrorOf(const std::string& yaml) {
  const auto tree = ParseQueueFile(yaml, "q.yaml");
  EXPECT_FALSE(tree.ok()) << yaml;
  if (tree.ok()) return "";
  EXPECT_EQ(tree.status().code(), StatusCode::kInvalidArgument);
  return tree.status().message();
}

// A file with `queues` beside the default queue.
std::string With(const std::string& queues) { return "queues:\n  default: {}\n" + queues; }

TEST(QueueFileTest, ReadsEveryKey) {
  const QueueTree tree = Parsed(kWhole);
  EXPECT_EQ(tree.half_life_seconds, 3 * 86400);
  EXPECT_EQ(tree.preempt_after_seconds, 300);
  EXPECT_EQ(tree.preempt_every_seconds, 7200);
  EXPECT_EQ(tree.classes,
            (std::vector<PriorityClass>{{"normal", 0}, {"urgent", 100}, {"scavenger", -100}}));
  const std::vector<QueueSpec> queues = {
      {.name = "research",
       .leaf = false,
       .guarantee = {64, 0},
       .ceiling = {128, 512},
       .weight = 2.5,
       .default_priority = 60,
       .time_limit_seconds = 2 * 86400},
      {.name = "vision",
       .parent = 0,
       .guarantee = {32, 0},
       .ceiling = {64, kNoCeiling},
       .default_priority = 60,
       .time_limit_seconds = 12 * 3600},
      {.name = "language", .parent = 0, .default_priority = 70, .time_limit_seconds = 2 * 86400},
      {.name = "production", .leaf = false, .guarantee = {8, 4}},  // its queues' sum
      {.name = "serving", .parent = 3, .guarantee = {8, 4}},
      {.name = "batch", .parent = 3},
      {.name = "default"}};
  EXPECT_EQ(tree.queues, queues);
}

TEST(QueueFileTest, TheFileOfAClusterWithoutOneIsTheDefaultTree) {
  EXPECT_EQ(Parsed(kDefaultQueueFile), DefaultTree());
  EXPECT_EQ(*ParseStoredQueues(0, ""), DefaultTree());
}

TEST(QueueFileTest, TheFilesOfTheDocumentationAreAccepted) {
  std::ifstream page(MUSTER_SOURCE_DIR "/docs/queues.md");
  std::string line;
  std::string yaml;
  bool inside = false;
  int files = 0;
  while (std::getline(page, line)) {
    if (line == "```yaml") {
      inside = true;
    } else if (inside && line == "```") {
      Parsed(yaml);
      ++files;
      yaml.clear();
      inside = false;
    } else if (inside) {
      yaml += line + "\n";
    }
  }
  EXPECT_EQ(files, 4);
}

TEST(QueueFileTest, AStoredFileHasItsVersionAndOneThatIsNotAcceptedNamesIt) {
  EXPECT_EQ(ParseStoredQueues(7, kWhole)->version, 7u);
  const auto bad = ParseStoredQueues(7, With("  a: {color: red}\n"));
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(bad.status().message(), HasSubstr("version 7 of the queues"));
  EXPECT_THAT(bad.status().message(), HasSubstr("queues:3: queues.a.color: unknown key"));
}

TEST(QueueFileTest, NamesFileLineAndKeyOfWhatIsWrong) {
  const struct {
    std::string yaml;
    std::string error;
  } kBad[] = {
      {"", "q.yaml:1: expected one map of keys such as queues: {default: {}}"},
      {"# nothing\n", "expected one map"},
      {"- a\n", "expected one map"},
      {"queues: {default: {}}\n---\nqueues: {default: {}}\n", "q.yaml:3: a second document"},
      {"half_life: 7d\n", "q.yaml:1: queues: is missing"},
      {"queues: [a]\n", "queues: expected a map, got a list"},
      {"queues: {}\n", "there is no queue 'default'"},
      {"queues:\n  a: {}\n", "q.yaml:1: queues: there is no queue 'default'"},
      {"queues:\n  default:\n    queues: {a: {}}\n", "'default' takes the jobs that name no queue"},
      {"queues:\n  default: {}\nqueue: {}\n",
       "q.yaml:3: queue: unknown key; did you mean 'queues'?"},
      {With("  a: {wieght: 2}\n"),
       "q.yaml:3: queues.a.wieght: unknown key; did you mean 'weight'?"},
      {With("  a: {guarantee: {gpu: 2}}\n"), "queues.a.guarantee.gpu: unknown key"},
      {With("  a: 3\n"), "q.yaml:3: queues.a: expected a map, got 3"},
      {With("  a: {guarantee: {gpus: 1.5}}\n"), "guarantee.gpus: expected a whole number, got 1.5"},
      {With("  a: {guarantee: {gpus: -1}}\n"), "must be from 0 to 250000, got -1"},
      {With("  a: {ceiling: {slots: 99999999999999999999}}\n"), "must be from 0 to 250000"},
      {With("  a: {guarantee: {gpus: 8}, ceiling: {gpus: 4}}\n"),
       "q.yaml:3: queues.a.ceiling: is 4 GPUs, less than the guarantee, 8"},
      {With("  a: {weight: 0}\n"), "weight: must be from 0.001 to 1000000, got 0"},
      {With("  a: {weight: -1}\n"), "weight: must be from 0.001 to 1000000, got -1"},
      {With("  a: {weight: .nan}\n"), "weight: expected a number, got '.nan'"},
      {With("  a: {weight: .inf}\n"), "weight: expected a number, got '.inf'"},
      {With("  a: {weight: 1e999}\n"), "weight: "},
      {With("  a: {weight: 1e300}\n"), "weight: must be from 0.001 to 1000000"},
      {With("  a: {priority: 101}\n"), "priority: must be from 0 to 100"},
      {With("  a: {time_limit: 0s}\n"), "time_limit: must be longer than 0s"},
      {With("  a: {time_limit: 4000d}\n"), "time_limit: must be 3650d at most"},
      {With("  a: {time_limit: 2147483647d2147483647d}\n"), "time_limit: expected a duration"},
      {With("half_life: 0\n"), "q.yaml:3: half_life: expected a duration"},
      {With("half_life: 0d\n"), "half_life: must be longer than 0s"},
      {With("preemption: {after: 0s}\n"), "preemption.after: must be longer than 0s"},
      {With("preemption: {often: 1h}\n"), "often"},
      {With("  a: {queues: {}}\n"), "queues.a.queues: is empty; leave it out"},
      {With("  a: {queues: {b: {}}}\n  b: {}\n"),
       "q.yaml:4: queues.b: there is a queue of this name in another place"},
      {With("  a: {queues: {b: {queues: {a: {}}}}}\n"),
       "q.yaml:3: queues.a.queues.b.queues.a: there is a queue of this name in another place"},
      {With("  a: {}\n  a: {}\n"), "queues.a: is given twice; the first one is on line 3"},
      {With("  'a b': {}\n"), "a queue's name has 1 to 63 letters"},
      {With("  .a: {}\n"), "a queue's name has 1 to 63 letters"},
      {With("  ? [a]\n  : {}\n"), "keys must be words"},
      {With("classes: {urgent: high}\n"), "classes.urgent: expected a whole number"},
      {With("classes: {urgent: 9999999}\n"), "must be from -1000000 to 1000000"},
      {With("classes: {normal: 1}\n"), "classes.normal: is 0"},
      {With("classes: {'a b': 1}\n"), "a class's name has 1 to 63 letters"},
      {"queues: {default: {}\n", "is no valid YAML"},
      {"queues: {default: *a}\n", "is no valid YAML"},
      {With("  a: {}\x01\n"), "q.yaml:3: control characters are not allowed in a queue file"},
      {With("  a: {}  # \xff\n"), "q.yaml:3: is not UTF-8"},
      {std::string(2 << 20, '#'), "q.yaml: is larger than a queue file may be (1 MiB)"},
  };
  for (const auto& [yaml, error] : kBad)
    EXPECT_THAT(ErrorOf(yaml), HasSubstr(error)) << yaml.substr(0, 200);
}

TEST(QueueFileTest, AQueueHasTheLimitsPerUserOfItsParentIfItNamesNone) {
  const QueueTree tree = Parsed(
      With("  a:\n    per_user: {gpus: 8, running: 2, queued: 100}\n    queues:\n      b: {}\n"
           "      c: {ceiling: {gpus: 4}, per_user: {slots: 0}}\n      d: {per_user: {}}\n"
           "      e: {ceiling: {gpus: 4}}\n"));
  const auto limits = [&](const char* queue) {
    return tree.queues.at(static_cast<std::size_t>(tree.Find(queue))).per_user;
  };
  const UserLimits of_a{.ceiling = {8, kNoCeiling, 2}, .queued = 100};
  EXPECT_EQ(limits("a"), of_a);
  EXPECT_EQ(limits("b"), of_a);
  EXPECT_EQ(limits("c"), (UserLimits{.ceiling = {kNoCeiling, 0, 0}}));
  EXPECT_EQ(limits("d"), UserLimits());
  EXPECT_EQ(limits("e"), of_a) << "what it has from its parent may be above its ceiling";
  EXPECT_EQ(limits("default"), UserLimits());
}

TEST(QueueFileTest, LimitsPerUserThatAreWrongAreRefusedWithLineAndKey) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a: {per_user: 8}", "q.yaml:3: queues.a.per_user: expected a map"},
      {"a: {per_user: {gpu: 8}}", "q.yaml:3: queues.a.per_user.gpu: unknown key"},
      {"a: {per_user: {gpus: -1}}", "q.yaml:3: queues.a.per_user.gpus: "},
      {"a: {per_user: {gpus: many}}", "q.yaml:3: queues.a.per_user.gpus: "},
      {"a: {per_user: {running: 0}}", "q.yaml:3: queues.a.per_user.running: "},
      {"a: {per_user: {queued: 0}}", "q.yaml:3: queues.a.per_user.queued: "},
      {"a: {ceiling: {gpus: 4}, per_user: {gpus: 8}}",
       "q.yaml:3: queues.a.per_user.gpus: is 8 GPUs, more than the 4 of a, so it would never be "
       "reached"},
      {"a: {ceiling: {slots: 4}, queues: {b: {per_user: {slots: 5}}}}",
       "q.yaml:3: queues.a.queues.b.per_user.slots: is 5 slots, more than the 4 of a"}};
  for (const auto& [queue, error] : cases)
    EXPECT_THAT(ErrorOf(With("  " + queue + "\n")), HasSubstr(error)) << queue;
}

TEST(QueueFileTest, ChildrenAreGuaranteedNoMoreThanTheirParent) {
  EXPECT_EQ(
      ErrorOf(With("  a:\n    guarantee: {gpus: 8}\n    queues:\n"
                   "      b: {guarantee: {gpus: 5}}\n      c: {guarantee: {gpus: 4}}\n")),
      "q.yaml:4: queues.a.guarantee: its queues have guarantees of 9 GPUs, more than its own 8");
  const QueueTree tree =
      Parsed(With("  a:\n    guarantee: {gpus: 8}\n    queues:\n"
                  "      b: {guarantee: {gpus: 5, slots: 2}}\n      c: {guarantee: {gpus: 3}}\n"));
  EXPECT_EQ(tree.queues[1].guarantee, (Amounts{8, 2}));
}

// Two levels up, by way of a parent without figures of its own.
TEST(QueueFileTest, GuaranteesFitBelowTheCeilingsOfAllAncestors) {
  EXPECT_EQ(ErrorOf(With("  a:\n    ceiling: {slots: 8}\n    queues:\n      b:\n        queues:\n"
                         "          c: {guarantee: {slots: 5}}\n"
                         "          d: {guarantee: {slots: 4}}\n")),
            "q.yaml:4: queues.a.ceiling: is 8 slots, less than the guarantee of its queues, 9");
}

TEST(QueueFileTest, ACeilingAboveThatOfAnAncestorIsRefused) {
  EXPECT_EQ(ErrorOf(With("  a:\n    ceiling: {gpus: 8}\n    queues:\n      b:\n        queues:\n"
                         "          c: {ceiling: {gpus: 9}}\n")),
            "q.yaml:8: queues.a.queues.b.queues.c.ceiling: is 9 GPUs, more than the 8 of a, so it "
            "would never be reached");
}

TEST(QueueFileTest, QueuesMayBeEightDeepAndNoDeeper) {
  const auto nested = [](int depth) {
    std::string yaml = "queues: {default: {}, q1: ";
    for (int i = 2; i <= depth; ++i) yaml += "{queues: {q" + std::to_string(i) + ": ";
    yaml += "{}";
    for (int i = 2; i <= depth; ++i) yaml += "}}";
    return yaml + "}\n";
  };
  EXPECT_EQ(Parsed(nested(8)).queues.size(), 9u);
  EXPECT_THAT(ErrorOf(nested(9)), HasSubstr("queues may be 8 deep"));
}

TEST(QueueFileTest, AliasesThatNestWithoutEndAreRefused) {
  EXPECT_THAT(ErrorOf("queues: &all\n  default: {}\n  a: {queues: *all}\n"),
              HasSubstr("there is a queue of this name in another place"));
  EXPECT_THAT(ErrorOf("queues: {default: {}, a: &a {queues: {b: *a}}}\n"),
              ::testing::AnyOf(HasSubstr("another place"), HasSubstr("8 deep")));
  // Each level names the one before it many times.
  std::string bomb = "queues:\n  default: {}\n  x0: &x0 {weight: 2}\n";
  for (int level = 1; level < 8; ++level) {
    const std::string name = "x" + std::to_string(level);
    bomb += "  " + name + ": &" + name + " {queues: {";
    for (int i = 0; i < 1000; ++i)
      bomb += "q" + std::to_string(level) + "-" + std::to_string(i) + ": *x" +
              std::to_string(level - 1) + ", ";
    bomb += "}}\n";
  }
  EXPECT_THAT(ErrorOf(bomb), HasSubstr("there is a queue of this name in another place"));
}

TEST(QueueFileTest, NestingWithoutEndIsNoValidYaml) {
  for (const std::string piece : {"[", "{", "- ", "? ", "{a: ", "&a ["}) {
    std::string yaml = "queues: ";
    while (yaml.size() < 200'000) yaml += piece;
    EXPECT_THAT(ErrorOf(yaml), HasSubstr("q.yaml:1: is no valid YAML")) << piece;
  }
}

TEST(QueueFileTest, AnAliasForFiguresIsFine) {
  const QueueTree tree = Parsed(
      "queues:\n  default: {}\n  a: &figures {weight: 3, guarantee: {gpus: 2}}\n  b: *figures\n");
  EXPECT_EQ(tree.queues[1].weight, 3);
  EXPECT_EQ(tree.queues[2].guarantee, (Amounts{2, 0}));
}

TEST(QueueFileTest, ThereMayBe4096QueuesAnd256Classes) {
  const auto many = [](int queues) {
    std::string yaml = "queues:\n  default: {}\n";
    for (int i = 1; i < queues; ++i)
      yaml += "  q" + std::to_string(i) + ": {guarantee: {gpus: 250000, slots: 250000}}\n";
    return yaml;
  };
  EXPECT_EQ(Parsed(many(4096)).queues.size(), 4096u);
  EXPECT_THAT(ErrorOf(many(4097)), HasSubstr("there may be 4096 queues"));
  std::string classes = "queues: {default: {}}\nclasses:\n";
  for (int i = 0; i < 257; ++i) classes += "  c" + std::to_string(i) + ": 1\n";
  EXPECT_THAT(ErrorOf(classes), HasSubstr("there may be 256 classes"));
}

TEST(QueueFileTest, AMebibyteOfKeysIsRefusedWhereTheyAreTooMany) {
  std::string yaml = "queues:\n";
  for (int i = 0; yaml.size() < (1 << 20) - 20; ++i) yaml += " " + std::to_string(i) + ":\n";
  EXPECT_THAT(ErrorOf(yaml),
              HasSubstr("more than 65536 keys, the most that a queue file may have"));
}

// Whatever a file has in it, it is a tree that keeps the rules, or refused.
TEST(QueueFileTest, RandomEditsOfAFileNeverBreakIt) {
  std::mt19937 random(20);
  const std::string whole = kWhole;
  const std::string kPieces[] = {"&a ",  "*a", "{", "}",      "[",      "]",    ":",
                                 "\n",   "  ", "-", "queues", "~",      "1e99", "!!map ",
                                 "<<: ", "\"", "'", "|",      "default"};
  int accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string yaml = whole;
    for (unsigned edits = 1 + random() % 4; edits > 0; --edits) {
      const std::size_t at = random() % yaml.size();
      switch (random() % 4) {
        case 0: yaml[at] = static_cast<char>(random()); break;
        case 1: yaml.erase(at, 1 + random() % 20); break;
        case 2: yaml.insert(at, yaml.substr(random() % yaml.size(), random() % 60)); break;
        default: yaml.insert(at, kPieces[random() % std::size(kPieces)]);
      }
      if (yaml.empty()) yaml = "x";
    }
    const auto tree = ParseQueueFile(yaml, "q.yaml");
    if (!tree.ok()) continue;
    ++accepted;
    ASSERT_GE(tree->Find(kDefaultQueue), 0) << yaml;
    ASSERT_NE(tree->FindClass(kNormalClass), nullptr) << yaml;
    for (std::size_t i = 0; i < tree->queues.size(); ++i) {
      const QueueSpec& queue = tree->queues[i];
      ASSERT_LT(queue.parent, static_cast<int>(i)) << yaml;
      ASSERT_TRUE(queue.parent < 0 || !tree->queues[static_cast<std::size_t>(queue.parent)].leaf);
      ASSERT_GT(queue.weight, 0) << yaml;
      ASSERT_GE(queue.guarantee.gpus, 0) << yaml;
      ASSERT_LE(queue.guarantee.gpus, queue.ceiling.gpus) << yaml;
    }
  }
  EXPECT_GT(accepted, 10);
}

}  // namespace
}  // namespace muster
