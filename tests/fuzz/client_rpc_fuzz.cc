// Calls of an admin, and one of a node, one after the other: each is a byte that says which (the
// order of kCalls), two bytes of length, and the request.
#include <array>
#include <string>

#include "common/base/ids.h"
#include "common/job_spec/parse.h"
#include "common/job_spec/queue_names.h"
#include "coordinator/service/client_requests.h"
#include "coordinator/service/conversions.h"
#include "coordinator/service/job_page.h"
#include "coordinator/service/list_limits.h"
#include "muster/v1/secret_api.pb.h"
#include "tests/fuzz/cluster.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/wire.h"

namespace {

using namespace muster;

const Actor kAdmin = {.kind = Actor::Kind::kAdmin, .name = "root", .peer = "ipv4:127.0.0.1:1"};

// About a job: found by name first, as the service does.
template <typename Request>
void AboutJob(fuzz::Cluster& cluster, const Request& request) {
  const Result<JobView> view = cluster.controller().FindJob(request.job());
  if (!view.ok()) return;
  auto event = EventOf(request);
  event.job = view->record->id.value;
  event.actor = kAdmin;
  cluster.Handle(event);
}

template <typename Request>
void ByAdmin(fuzz::Cluster& cluster, const Request& request) {
  cluster.Handle(EventOf(request, kAdmin));
}

void Submit(fuzz::Cluster& cluster, const v1::SubmitRequest& request) {
  static constexpr std::array kIds = {"00000000aa", "00000000bb", "00000000cc"};
  for (const char* id : kIds) {
    if (cluster.controller().FindJob(id).ok()) continue;
    return cluster.Handle(EventOf(request, kAdmin, JobId{id}));
  }
}

void Verify(fuzz::Cluster& cluster, const v1::VerifyCheckpointsRequest& request) {
  const Result<JobView> view = cluster.controller().FindJob(request.job());
  if (view.ok()) cluster.Handle(VerifyRequested{.actor = kAdmin, .job = view->record->id.value});
}

void Explain(fuzz::Cluster& cluster, const v1::ExplainJobRequest& request) {
  const Controller& controller = cluster.controller();
  std::shared_ptr<const WhyQuestion> question;
  if (request.spec_yaml().empty()) {
    const Result<JobView> view = controller.FindJob(request.job());
    if (view.ok()) question = controller.AskWhy(view->record->id, cluster.now());
  } else if (const Result<JobSpec> spec = ParseJobSpec(request.spec_yaml()); spec.ok()) {
    const auto asked = controller.AskWhy(*spec, "ada", cluster.now());
    if (asked.ok()) question = *asked;
  }
  if (question) ToProto(*question, Answer(*question)).SerializeAsString();
}

template <typename Request>
void Find(fuzz::Cluster& cluster, const Request& request) {
  const Result<JobView> view = cluster.controller().FindJob(request.job());
  if (view.ok()) ToProto(*view, JobDetail::kFull, cluster.now().mono).SerializeAsString();
  (void)cluster.controller().FindArchived(request.job());
}

void ReadLog(fuzz::Cluster& cluster, const v1::ReadLogRequest& request) {
  const Result<JobView> view = cluster.controller().FindJob(request.job());
  if (view.ok()) (void)cluster.controller().LocateLog(*view, request.rank(), request.generation());
}

void ListJobs(fuzz::Cluster& cluster, const v1::ListJobsRequest& request) {
  const auto page = std::make_shared<JobPage>(request, nullptr);
  if (!page->Begin().ok()) return;
  const std::vector<JobView> jobs = cluster.controller().Jobs();
  for (auto view = jobs.rbegin(); view != jobs.rend() && !page->IsFull(); ++view)
    page->Add(*view, cluster.now().mono);
  v1::ListJobsResponse response;
  page->Fill(&response);
  fuzz::Require(response.jobs_size() <= kMaxPage, "a page has its bound");
}

void ShowUsage(fuzz::Cluster& cluster, const v1::ShowUsageRequest& request) {
  v1::ShowUsageResponse response;
  (void)FillUsage(
      cluster.controller().UsageByDay(cluster.now()), *cluster.controller().Queues().tree, request,
      [](const QueueDayRecord&) { return true; }, &response);
}

// Encrypted by the service before the core has it.
void SetSecret(fuzz::Cluster& cluster, const v1::SetSecretRequest& request) {
  if (!FollowsNameRule(request.name())) return;
  cluster.Handle(
      SecretSetRequested{.actor = kAdmin,
                         .record = {.secret = {"root", QueueName(request.queue()), request.name()},
                                    .value = std::to_string(request.value().size())}});
}

void RemoveSecret(fuzz::Cluster& cluster, const v1::RemoveSecretRequest& request) {
  cluster.Handle(SecretRemoveRequested{
      .actor = kAdmin, .secret = {"root", QueueName(request.queue()), request.name()}});
}

// Of a node, about a job.
void FetchSecrets(fuzz::Cluster& cluster, const v1::FetchSecretsRequest& request) {
  const Result<JobView> view = cluster.controller().FindJob(request.job());
  cluster.Handle(RequestNoted{.actor = {.name = "node/n1", .peer = kAdmin.peer},
                              .operation = "FetchSecrets",
                              .object = "job " + request.job(),
                              .status = view.status()});
}

// Requests of which nothing but a limit is used here.
template <typename Request>
void Page(fuzz::Cluster&, const Request& request) {
  const Result<int> limit = PageLimit(request.limit());
  if (limit.ok()) fuzz::Require(*limit > 0 && *limit <= kMaxPage, "a page has its bound");
}

// Requests that say nothing.
template <typename Request>
void Show(fuzz::Cluster& cluster, const Request&) {
  cluster.ShowAll();
}

template <typename Request, void (*kDo)(fuzz::Cluster&, const Request&)>
void Call(fuzz::Cluster& cluster, std::string_view bytes) {
  if (const auto request = fuzz::Decoded<Request>(bytes)) kDo(cluster, *request);
}

constexpr void (*kCalls[])(fuzz::Cluster&, std::string_view) = {
    Call<v1::SubmitRequest, Submit>,
    Call<v1::CancelRequest, AboutJob>,
    Call<v1::SuspendRequest, AboutJob>,
    Call<v1::ResumeRequest, AboutJob>,
    Call<v1::UpdateJobRequest, AboutJob>,
    Call<v1::HoldJobRequest, AboutJob>,
    Call<v1::ReleaseJobRequest, AboutJob>,
    Call<v1::DrainRequest, ByAdmin>,
    Call<v1::UndrainRequest, ByAdmin>,
    Call<v1::InjectFaultRequest, ByAdmin>,
    Call<v1::VerifyCheckpointsRequest, Verify>,
    Call<v1::ApplyQueuesRequest, ByAdmin>,
    Call<v1::ApplyUsersRequest, ByAdmin>,
    Call<v1::ExplainJobRequest, Explain>,
    Call<v1::GetJobRequest, Find>,
    Call<v1::WatchRequest, Find>,
    Call<v1::ReadLogRequest, ReadLog>,
    Call<v1::ListJobsRequest, ListJobs>,
    Call<v1::ListEventsRequest, Page>,
    Call<v1::ListNodesRequest, Page>,
    Call<v1::ListAuditRequest, Page>,
    Call<v1::ShowUsageRequest, ShowUsage>,
    Call<v1::ShowQueuesRequest, Show>,
    Call<v1::ShowUsersRequest, Show>,
    Call<v1::WhoAmIRequest, Show>,
    Call<v1::VersionRequest, Show>,
    Call<v1::ExportScheduleRequest, Show>,
    Call<v1::SetSecretRequest, SetSecret>,
    Call<v1::RemoveSecretRequest, RemoveSecret>,
    Call<v1::ListSecretsRequest, Show>,
    Call<v1::RotateSecretKeyRequest, Show>,
    Call<v1::FetchSecretsRequest, FetchSecrets>,
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(fuzz::TextOf(data, size));
  fuzz::Cluster cluster;
  for (int calls = 0; !input.empty() && calls < 16; ++calls) {
    const std::size_t which = input.Byte() % std::size(kCalls);
    kCalls[which](cluster, input.Piece());
    cluster.Wait(std::chrono::milliseconds(100));
  }
  cluster.ShowAll();
  return 0;
}
