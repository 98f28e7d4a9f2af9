// configs/job.schema.json, from which editors and docs/job-file.md take keys, says what the parser
// does: the same keys, types, words, bounds and defaults. tests/docs validates whole files.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/job_spec/parse.h"
#include "common/job_spec/queue_names.h"

namespace muster {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

Json Schema() {
  const auto text = ReadFile(std::string(MUSTER_SOURCE_DIR) + "/configs/job.schema.json");
  return Json::parse(text.value());
}

// Every key of a map and below it, dotted, with its schema; of a list of maps as the parser has it.
void CollectKeys(const Json& schema, const std::string& path, std::map<std::string, Json>* out) {
  const Json properties = schema.value("properties", Json::object());
  for (const auto& [name, key] : properties.items()) {
    (*out)[path + name] = key;
    CollectKeys(key, path + name + ".", out);
    const auto collect_forms = [&](const Json& of, const std::string& below) {
      const Json forms = of.value("oneOf", Json::array());
      for (const Json& form : forms) CollectKeys(form, path + name + below, out);
    };
    collect_forms(key, ".");
    if (key.contains("items")) collect_forms(key["items"], "[0].");
    if (key.contains("additionalProperties") && key["additionalProperties"].is_object())
      collect_forms(key["additionalProperties"], ".any.");
  }
}

std::map<std::string, Json> SchemaKeys() {
  std::map<std::string, Json> keys;
  CollectKeys(Schema(), "", &keys);
  return keys;
}

constexpr char kTrain[] = R"(name: j
train:
  model: {path: m}
  data: {train: d.jsonl}
  schedule: {max_steps: 1000000000}
)";
constexpr char kCommand[] = "name: j\ncommand: [python]\n";

// What has to be there beside a key.
std::vector<std::string> Beside(const std::string& key) {
  static const std::pair<const char*, std::vector<std::string>> kRules[] = {
      {"resources.gpu", {"resources.device=cuda"}},
      {"resources.topology.", {"resources.topology.within=rack"}},
      {"resources.min_nodes", {"resources.nodes=16384"}},
      {"resources.share_spares", {"resources.spares=1"}},
      {"resources.", {"resources={}"}},
      {"container", {"container.image=i"}},
      {"on_event", {"on_event.kinds=[failed]", "on_event.webhook=http://h/p"}},
      {"train.lora", {"train.lora={}"}},
      {"train.quantization", {"train.lora={}", "train.quantization={}"}},
      {"train.eval.early_stop", {"train.data.eval_ratio=0.5", "train.eval.early_stop.patience=1"}},
      {"train.eval", {"train.data.eval_ratio=0.5", "train.eval={}"}},
      {"train.output.export", {"train.data.eval_ratio=0.5"}},
      {"train.init_from.", {"train.init_from.path=c"}},
      {"train.profile", {"train.profile.start=1"}},
      {"train.schedule.epochs", {"train.schedule={}"}},
  };
  for (const auto& [prefix, overrides] : kRules)
    if (key.starts_with(prefix)) return overrides;
  return {};
}

// A job with the key as given, or without it.
Result<JobSpec> JobWith(const std::string& key, const std::string& value) {
  const bool of_command = key == "command" || key == "rendezvous" ||
                          key.starts_with("resources.visible_gpus") ||
                          key.starts_with("resources.gpus_per_rank");
  std::vector<std::string> overrides = Beside(key);
  if (!value.empty()) overrides.push_back(key + "=" + value);
  MUSTER_ASSIGN_OR_RETURN(const std::string yaml,
                          ApplyOverrides(of_command ? kCommand : kTrain, overrides));
  return ParseJobSpec(yaml, "job.yaml");
}

std::string Refusal(const std::string& key, const std::string& value) {
  const auto job = JobWith(key, value);
  return job.ok() ? "" : job.status().message();
}

TEST(JobSchema, HasTheKeysOfTheParser) {
  std::set<std::string> asked;
  const auto parse = [&](const std::string& yaml) {
    const auto job = ParseJobSpec(yaml, "job.yaml", &asked);
    EXPECT_TRUE(job.ok()) << job.status().ToString();
  };
  parse(std::string(kCommand) +
        "resources: {device: cuda, gpu: {}, topology: {within: rack}, labels: {any: {exists: "
        "true}}}\nrestart: {}\non_event: {kinds: [a], webhook: 'http://h/p'}\ncontainer: {image: "
        "i}\nsecrets: [{name: a, file: A}]\n");
  parse(R"(name: j
train:
  model: {path: m, add_tokens: [{content: x}]}
  init_from: {path: c}
  data: {train: d.jsonl, eval_ratio: 0.5}
  fsdp: {}
  optimizer: {}
  schedule: {max_steps: 10}
  batch: {}
  snapshot: {}
  checkpoint: {}
  logging: {}
  eval: {early_stop: {patience: 1}}
  profile: {start: 1}
  output: {}
)");
  parse(std::string(kTrain) + "  lora: {}\n  quantization: {}\n");
  asked.erase("resources.labels.any");  // a label's name is the user's
  asked.erase("on_event.command");      // refused by name
  std::set<std::string> keys;
  for (const auto& [key, schema] : SchemaKeys()) keys.insert(key);
  EXPECT_EQ(keys, asked);
}

TEST(JobSchema, DefaultsAreWhatTheParserTakes) {
  int seen = 0;
  for (const auto& [key, schema] : SchemaKeys()) {
    if (!schema.contains("default") || key.find('[') != std::string::npos) continue;
    SCOPED_TRACE(key);
    const auto without = JobWith(key, "");
    const auto with = JobWith(key, schema["default"].dump());
    ASSERT_TRUE(without.ok()) << without.status().ToString();
    ASSERT_TRUE(with.ok()) << with.status().ToString();
    JobSpec given = *with;
    // Empty in a job that names none.
    if (key == "queue" && given.queue == kDefaultQueue) given.queue.clear();
    if (key == "class" && given.priority_class == kNormalClass) given.priority_class.clear();
    EXPECT_TRUE(given == *without) << "is no default: " << schema["default"];
    ++seen;
  }
  EXPECT_GT(seen, 50);
}

TEST(JobSchema, WordsAreThoseThatTheParserNames) {
  int seen = 0;
  for (const auto& [key, schema] : SchemaKeys()) {
    if (!schema.contains("enum")) continue;
    SCOPED_TRACE(key);
    const std::string refusal = Refusal(key, "no-such-word");
    std::vector<std::string> words = schema["enum"];
    std::string list;
    for (std::size_t i = 0; i < words.size(); ++i)
      list += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
    EXPECT_THAT(refusal, HasSubstr("expected " + list + ", got 'no-such-word'"));
    ++seen;
  }
  EXPECT_GT(seen, 12);
}

TEST(JobSchema, WholeNumbersHaveTheBoundsThatTheParserNames) {
  int seen = 0;
  for (const auto& [key, schema] : SchemaKeys()) {
    if (schema.value("type", Json()) != "integer") continue;
    SCOPED_TRACE(key);
    EXPECT_THAT(Refusal(key, "99999999999999999999"),
                HasSubstr("must be from " + schema["minimum"].dump() + " to " +
                          schema["maximum"].dump() + ", got"));
    EXPECT_THAT(Refusal(key, "x"), HasSubstr("expected a whole number, got 'x'"));
    EXPECT_EQ(Refusal(key, schema["minimum"].dump()), "");
    ++seen;
  }
  EXPECT_GT(seen, 25);
}

TEST(JobSchema, NumbersHaveTheBoundsOfTheParser) {
  int seen = 0;
  for (const auto& [key, schema] : SchemaKeys()) {
    if (schema.value("type", Json()) != "number") continue;
    SCOPED_TRACE(key);
    EXPECT_THAT(Refusal(key, "x"), HasSubstr("expected a number, got 'x'"));
    for (const auto& [bound, allowed, beyond] :
         {std::tuple{"minimum", true, -1e-9}, std::tuple{"exclusiveMinimum", false, -1e-9},
          std::tuple{"maximum", true, 1e-9}, std::tuple{"exclusiveMaximum", false, 1e-9}}) {
      if (!schema.contains(bound)) continue;
      const double at = schema[bound];
      EXPECT_EQ(Refusal(key, Json(at).dump()).empty(), allowed) << bound;
      EXPECT_THAT(Refusal(key, Json(at + beyond).dump()), HasSubstr("must be")) << bound;
    }
    ++seen;
  }
  EXPECT_GT(seen, 10);
}

TEST(JobSchema, TextsAndSwitchesAreNothingElse) {
  for (const auto& [key, schema] : SchemaKeys()) {
    if (key.find('[') != std::string::npos) continue;  // no path of an override
    SCOPED_TRACE(key);
    if (schema.value("type", Json()) == "boolean") {
      EXPECT_THAT(Refusal(key, "yes"), HasSubstr("expected true or false, got 'yes'"));
    }
    if (schema.value("type", Json()) == "string") {
      EXPECT_THAT(Refusal(key, "[5]"), HasSubstr("got a list"));
    }
  }
}

}  // namespace
}  // namespace muster
