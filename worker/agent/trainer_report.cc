#include "worker/agent/trainer_report.h"

#include <utility>

#include "common/base/json.h"
#include "common/base/json_integer.h"

namespace muster::worker {
namespace {

using Json = nlohmann::json;
using Body = decltype(TrainerReport::body);

// Limits of v1.ShardWritten and v1.RejectedCheckpoint: a Hello in which one is longer is refused,
// and with it the node.
constexpr std::size_t kMaxName = 255;
constexpr std::size_t kMaxChecksum = 64;

std::string NameOf(const Json& name, std::size_t most = kMaxName) {
  auto text = name.get<std::string>();
  if (text.size() > most) throw Json::other_error::create(503, "a name is too long", &name);
  return text;
}

Resumed ParseResumed(const Json& json) {
  Resumed resumed{.step = IntegerOf<Step>(json.at("step")),
                  .from = json.value("from", std::string())};
  for (const Json& rejected : json.value("rejected", Json::array())) {
    resumed.rejected.push_back({.directory = NameOf(rejected.at("directory")),
                                .reason = rejected.at("reason").get<std::string>()});
  }
  return resumed;
}

ShardWritten ParseShardWritten(const Json& json) {
  const Json& shard = json.at("shard");
  ShardWritten written{.step = IntegerOf<Step>(json.at("step")),
                       .directory = NameOf(json.at("directory")),
                       .shard = {.rank = IntegerOf<int>(shard.at("rank")),
                                 .file = NameOf(shard.at("file")),
                                 .bytes = IntegerOf<std::uint64_t>(shard.at("bytes")),
                                 .checksum = NameOf(shard.at("checksum"), kMaxChecksum)}};
  if (const auto loss = json.find("eval_loss"); loss != json.end())
    written.eval_loss = loss->get<double>();
  return written;
}

Result<Body> ParseBody(const Json& json) {
  const auto type = json.at("type").get<std::string>();
  if (type == "formed") return Body(Formed{});
  if (type == "resumed") return Body(ParseResumed(json));
  if (type == "first_step") return Body(FirstStep{IntegerOf<Step>(json.at("step"))});
  if (type == "shard_written") return Body(ParseShardWritten(json));
  if (type == "checkpoint_failed")
    return Body(CheckpointFailed{.step = IntegerOf<Step>(json.at("step")),
                                 .kind = CheckpointTroubleOf(json.value("kind", std::string())),
                                 .reason = json.at("reason").get<std::string>()});
  if (type == "error")
    return Body(TrainerError{.kind = json.at("kind").get<std::string>(),
                             .message = json.at("message").get<std::string>(),
                             .step = IntegerOr(json, "step", Step{0}),
                             .symptom = json.value("symptom", false)});
  if (type == "note")
    return Body(TrainerNote{.severity = json.value("severity", std::string("info")),
                            .message = json.at("message").get<std::string>()});
  if (type == "parked") return Body(Parked{IntegerOr(json, "step", Step{0})});
  if (type == "finished")
    return Body(Finished{.step = IntegerOf<Step>(json.at("step")),
                         .model_dir = json.value("model_dir", std::string())});
  return InvalidArgument("a trainer's message of the unknown type '" + type + "'");
}

}  // namespace

Result<TrainerReport> ParseTrainerReport(const JobId& job, Generation generation, int rank,
                                         const std::string& json) {
  try {
    MUSTER_ASSIGN_OR_RETURN(Body body, ParseBody(Json::parse(json)));
    return TrainerReport{
        .job = job, .generation = generation, .rank = rank, .body = std::move(body)};
  } catch (const Json::exception& error) {
    return InvalidArgument(std::string("a trainer's message is malformed: ") + error.what());
  }
}

}  // namespace muster::worker
