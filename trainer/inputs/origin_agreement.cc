#include "trainer/inputs/origin_agreement.h"

#include <filesystem>

#include "trainer/comm/agree.h"
#include "trainer/formats/weights_fingerprint.h"
#include "trainer/model/adapter_form.h"

namespace muster {
namespace {

constexpr char kWayOut[] = "; restore it, or start again with another output.dir";

}  // namespace

std::string BaseModelName(const std::string& dir, const std::string& given) {
  std::error_code error;
  const bool is_name = !given.starts_with(".") && !given.starts_with("/") &&
                       !dir.ends_with(given) && given.find('/') != std::string::npos;
  return is_name ? given : std::filesystem::weakly_canonical(dir, error).string();
}

Result<std::optional<AdapterOrigin>> AgreeOnOrigin(const TrainSpec& train,
                                                   const std::string& model_dir,
                                                   std::optional<std::uint64_t> base_weights,
                                                   Communicator& communicator) {
  if (!train.lora) return std::optional<AdapterOrigin>();
  AdapterOrigin origin{.base_model = BaseModelName(model_dir, train.model.path),
                       .base_weights = base_weights ? FingerprintText(*base_weights) : "",
                       .form = AdapterFormText(AdapterFormOf(train))};
  if (communicator.size() > 1) {
    MUSTER_RETURN_IF_ERROR(ShareText(communicator, &origin.base_model, 0));
  }
  return std::optional<AdapterOrigin>(std::move(origin));
}

Status CheckOrigin(const std::optional<AdapterOrigin>& saved,
                   const std::optional<AdapterOrigin>& job) {
  if (!saved) return OkStatus();
  if (!job) {
    return FailedPrecondition("it holds an adapter of " + saved->base_model +
                              ", and this job has no train.lora and trains the whole model" +
                              kWayOut);
  }
  MUSTER_ASSIGN_OR_RETURN(const AdapterForm form, ParseAdapterForm(job->form));
  const Status same = CheckSameForm(saved->form, form);
  if (same.code() == StatusCode::kFailedPrecondition) {
    return FailedPrecondition(same.message() + ", which makes another function of it" + kWayOut);
  }
  // A state of a later version: to begin anew is not what was meant. Damage is for the caller.
  if (same.code() == StatusCode::kUnimplemented) return FailedPrecondition(same.message());
  if (!same.ok()) return same;
  const bool known = !saved->base_weights.empty() && !job->base_weights.empty();
  if (!known || saved->base_weights == job->base_weights) return OkStatus();
  return FailedPrecondition(
      "it holds an adapter that was trained over the weights of " + saved->base_model + " (" +
      saved->base_weights + "), and those of train.model.path, " + job->base_model +
      ", are others now (" + job->base_weights + "), over which it means nothing" + kWayOut);
}

Status AgreeOnSegments(const std::vector<const Segment*>& readable,
                       const std::optional<AdapterOrigin>& job, Communicator& communicator) {
  if (!job) return OkStatus();
  Status mine;
  for (const Segment* segment : readable) {
    if (!mine.ok() || segment->NewestStep() < 0) continue;
    mine = CheckOrigin(segment->spec().adapter, job)
               .WithContext("the snapshot " + segment->spec().name);
  }
  std::int64_t refused = mine.ok() ? 0 : 1;
  MUSTER_RETURN_IF_ERROR(
      communicator.AllReduce(&refused, 1, ElementType::kInt64, ReduceOp::kMax)->Wait());
  if (!mine.ok() || refused == 0) return mine;
  return Unavailable("another rank's snapshot belongs to another model or adapter; see its log");
}

}  // namespace muster
