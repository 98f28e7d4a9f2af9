#include "worker/agent/trainer_report.h"

#include <utility>

#include "common/base/json.h"

namespace muster::worker {
namespace {

using Json = nlohmann::json;
using Body = decltype(TrainerReport::body);

Resumed ParseResumed(const Json& json) {
  Resumed resumed{.step = json.at("step").get<Step>(), .from = json.value("from", std::string())};
  for (const Json& rejected : json.value("rejected", Json::array())) {
    resumed.rejected.push_back({.directory = rejected.at("directory").get<std::string>(),
                                .reason = rejected.at("reason").get<std::string>()});
  }
  return resumed;
}

ShardWritten ParseShardWritten(const Json& json) {
  const Json& shard = json.at("shard");
  ShardWritten written{.step = json.at("step").get<Step>(),
                       .directory = json.at("directory").get<std::string>(),
                       .shard = {.rank = shard.at("rank").get<int>(),
                                 .file = shard.at("file").get<std::string>(),
                                 .bytes = shard.at("bytes").get<std::uint64_t>(),
                                 .checksum = shard.at("checksum").get<std::string>()}};
  if (const auto loss = json.find("eval_loss"); loss != json.end())
    written.eval_loss = loss->get<double>();
  return written;
}

Result<Body> ParseBody(const Json& json) {
  const auto type = json.at("type").get<std::string>();
  if (type == "formed") return Body(Formed{});
  if (type == "resumed") return Body(ParseResumed(json));
  if (type == "first_step") return Body(FirstStep{json.at("step").get<Step>()});
  if (type == "shard_written") return Body(ParseShardWritten(json));
  if (type == "checkpoint_failed")
    return Body(CheckpointFailed{.step = json.at("step").get<Step>(),
                                 .kind = CheckpointTroubleOf(json.value("kind", std::string())),
                                 .reason = json.at("reason").get<std::string>()});
  if (type == "error")
    return Body(TrainerError{.kind = json.at("kind").get<std::string>(),
                             .message = json.at("message").get<std::string>(),
                             .step = json.value("step", Step{0}),
                             .symptom = json.value("symptom", false)});
  if (type == "note")
    return Body(TrainerNote{.severity = json.value("severity", std::string("info")),
                            .message = json.at("message").get<std::string>()});
  if (type == "parked") return Body(Parked{json.value("step", Step{0})});
  if (type == "finished")
    return Body(Finished{.step = json.at("step").get<Step>(),
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
