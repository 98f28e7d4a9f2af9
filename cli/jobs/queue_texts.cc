#include "cli/jobs/queue_texts.h"

#include <optional>

#include "cli/jobs/job_json.h"

namespace muster {
namespace {

std::string AmountText(std::optional<int> gpus, std::optional<int> slots) {
  std::string text;
  if (gpus) text = std::to_string(*gpus) + (*gpus == 1 ? " GPU" : " GPUs");
  if (slots)
    text +=
        (text.empty() ? "" : ", ") + std::to_string(*slots) + (*slots == 1 ? " slot" : " slots");
  return OrDash(text);
}

Json UserLimitsJson(const v1::Queue& queue) {
  Json json = CeilingJson(queue.per_user());
  const auto or_null = [](int most) { return most == 0 ? Json(nullptr) : Json(most); };
  json["running"] = or_null(queue.per_user().jobs());
  json["queued"] = or_null(queue.per_user_queued());
  return json;
}

}  // namespace

Json QueueListJson(const v1::ShowQueuesResponse& queues) {
  Json list = Json::array();
  for (const v1::Queue& queue : queues.queues())
    list.push_back({{"name", queue.name()},
                    {"parent", TextOrNull(queue.parent())},
                    {"takes_jobs", queue.leaf()},
                    {"guarantee", AmountsJson(queue.guarantee())},
                    {"ceiling", CeilingJson(queue.ceiling())},
                    {"per_user", UserLimitsJson(queue)},
                    {"weight", queue.weight()},
                    {"priority", queue.priority()},
                    {"time_limit_seconds", queue.time_limit_seconds()},
                    {"used", AmountsJson(queue.used())},
                    {"running", queue.running()},
                    {"waiting", queue.waiting()},
                    {"share", queue.share()},
                    {"usage_share", queue.usage_share()}});
  return list;
}

std::string AmountText(const v1::Amounts& amounts) {
  const auto unless_zero = [](int n) { return n == 0 ? std::nullopt : std::optional(n); };
  return AmountText(unless_zero(amounts.gpus()), unless_zero(amounts.slots()));
}

std::string UserLimitsText(const v1::Queue& queue) {
  const v1::Ceiling& most = queue.per_user();
  std::string text = most.has_gpus() || most.has_slots() ? AmountText(most) : "";
  const auto add = [&text](int count, const char* what) {
    if (count > 0) text += (text.empty() ? "" : ", ") + std::to_string(count) + what;
  };
  add(most.jobs(), " running");
  add(queue.per_user_queued(), " queued");
  return OrDash(text);
}

std::string AmountText(const v1::Ceiling& ceiling) {
  return AmountText(ceiling.has_gpus() ? std::optional(ceiling.gpus()) : std::nullopt,
                    ceiling.has_slots() ? std::optional(ceiling.slots()) : std::nullopt);
}

}  // namespace muster
