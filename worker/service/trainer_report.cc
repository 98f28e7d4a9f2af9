#include "worker/service/trainer_report.h"

#include <nlohmann/json.hpp>

namespace muster::worker {
namespace {

using Json = nlohmann::json;

void FillResumed(const Json& json, v1::Resumed* to) {
  to->set_step(json.at("step").get<std::int64_t>());
  to->set_from(json.value("from", std::string()));
  for (const Json& rejected : json.value("rejected", Json::array())) {
    v1::RejectedCheckpoint* out = to->add_rejected();
    out->set_directory(rejected.at("directory").get<std::string>());
    out->set_reason(rejected.at("reason").get<std::string>());
  }
}

void FillShardWritten(const Json& json, v1::ShardWritten* to) {
  const Json& shard = json.at("shard");
  to->set_step(json.at("step").get<std::int64_t>());
  to->set_directory(json.at("directory").get<std::string>());
  to->mutable_shard()->set_rank(shard.at("rank").get<int>());
  to->mutable_shard()->set_file(shard.at("file").get<std::string>());
  to->mutable_shard()->set_bytes(shard.at("bytes").get<std::uint64_t>());
  to->mutable_shard()->set_checksum(shard.at("checksum").get<std::string>());
  if (const auto loss = json.find("eval_loss"); loss != json.end())
    to->set_eval_loss(loss->get<double>());
}

bool FillBody(const Json& json, v1::TrainerReport* to) {
  const auto type = json.at("type").get<std::string>();
  if (type == "formed") {
    to->mutable_formed();
  } else if (type == "resumed") {
    FillResumed(json, to->mutable_resumed());
  } else if (type == "first_step") {
    to->mutable_first_step()->set_step(json.at("step").get<std::int64_t>());
  } else if (type == "shard_written") {
    FillShardWritten(json, to->mutable_shard_written());
  } else if (type == "checkpoint_failed") {
    to->mutable_checkpoint_failed()->set_step(json.at("step").get<std::int64_t>());
    to->mutable_checkpoint_failed()->set_reason(json.at("reason").get<std::string>());
  } else if (type == "error") {
    to->mutable_error()->set_kind(json.at("kind").get<std::string>());
    to->mutable_error()->set_message(json.at("message").get<std::string>());
    to->mutable_error()->set_step(json.value("step", std::int64_t{0}));
    to->mutable_error()->set_symptom(json.value("symptom", false));
  } else if (type == "note") {
    to->mutable_note()->set_severity(json.value("severity", std::string("info")));
    to->mutable_note()->set_message(json.at("message").get<std::string>());
  } else if (type == "parked") {
    to->mutable_parked()->set_step(json.value("step", std::int64_t{0}));
  } else if (type == "finished") {
    to->mutable_finished()->set_step(json.at("step").get<std::int64_t>());
    to->mutable_finished()->set_model_dir(json.value("model_dir", std::string()));
  } else {
    return false;
  }
  return true;
}

}  // namespace

bool FillTrainerReport(const TrainerReport& from, v1::TrainerReport* to) {
  to->set_job_id(from.job.value);
  to->set_generation(from.generation);
  to->set_rank(from.rank);
  try {
    return FillBody(Json::parse(from.json), to);
  } catch (const Json::exception&) {
    return false;
  }
}

std::string ValidUtf8(const std::string& text) {
  const std::string quoted = Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  return Json::parse(quoted).get<std::string>();
}

}  // namespace muster::worker
