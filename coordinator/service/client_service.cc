#include "coordinator/service/client_service.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <memory>
#include <utility>
#include <variant>

#include "common/base/check.h"
#include "common/base/text.h"
#include "common/base/version.h"
#include "common/job_spec/parse.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/peer_certificate.h"
#include "common/security/encoding.h"
#include "common/telemetry/log.h"
#include "coordinator/queues/queue_file.h"
#include "coordinator/replay/recording.h"
#include "coordinator/replay/schedule_record.h"
#include "coordinator/service/conversions.h"
#include "coordinator/store/commit_queue.h"

namespace muster {
namespace {

constexpr std::int64_t kDayMillis = 24 * 3600 * 1000;
// The store keeps an event's number as a signed integer.
constexpr std::uint64_t kLastSeq = std::numeric_limits<std::int64_t>::max();

// Ten hexadecimal digits. Not by std::random_device, which asks the processor what it can do: a
// virtual machine is left for that.
JobId RandomJobId() {
  const Result<std::string> bytes = RandomBytes(5);
  MUSTER_CHECK(bytes.ok(), bytes.status().message());
  return JobId{ToHex(*bytes)};
}

class RefusedWatch final : public grpc::ServerWriteReactor<v1::WatchUpdate> {
 public:
  explicit RefusedWatch(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

void FillSubmitted(const Reply& reply, v1::SubmitResponse* response) {
  const auto* accepted = std::get_if<SubmitAccepted>(&reply.body);
  if (accepted == nullptr) return;
  response->set_id(accepted->id.value);
  response->set_name(accepted->name);
  response->set_state(static_cast<v1::JobState>(static_cast<int>(accepted->state)));
  response->set_existed(accepted->existed);
}

constexpr int kMaxStates = 16;
constexpr std::size_t kMaxNameFilterBytes = 256;

Status TooManyStates() {
  return InvalidArgument("a list is filtered by " + std::to_string(kMaxStates) +
                         " states at most; name fewer");
}

// The limit of a request, in which 0 means the maximum.
Result<int> PageLimit(int limit, int most = ClientService::kMaxPage) {
  if (limit >= 0 && limit <= most) return limit == 0 ? most : limit;
  return InvalidArgument("limit " + std::to_string(limit) + " is not from 0 to " +
                         std::to_string(most));
}

// No states: any.
template <typename States, typename State>
bool HasState(const States& states, State state) {
  return states.empty() ||
         std::find(states.begin(), states.end(), static_cast<int>(state)) != states.end();
}

}  // namespace

// A page of ListJobs while it is gathered; one job more than fits shows that another follows.
struct ClientService::JobPage {
  v1::ListJobsRequest request;
  v1::ListJobsResponse* response = nullptr;  // only while the call is open
  int limit = kMaxPage;
  std::uint64_t before = std::numeric_limits<std::int64_t>::max();
  std::uint64_t archive_before = before;
  std::int64_t oldest_end_unix_ms = SystemClock().UnixMillis() - kDayMillis;
  std::map<std::uint64_t, v1::Job> jobs = {};  // by submit_order
  std::uint64_t last_listed = 0;

  Status Begin() {
    MUSTER_ASSIGN_OR_RETURN(limit, PageLimit(request.limit()));
    if (request.states_size() > kMaxStates) return TooManyStates();
    if (request.name().size() > kMaxNameFilterBytes)
      return InvalidArgument("a job's name has 256 bytes at most");
    const std::string& token = request.page_token();
    if (token.empty()) return OkStatus();
    const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), before);
    if (error != std::errc() || end != token.data() + token.size())
      return InvalidArgument("'" + token + "' is no page_token of ListJobs");
    archive_before = before;
    return OkStatus();
  }
  bool Takes(const JobRecord& job) const {
    const bool old = IsTerminal(job.state) && job.ended_unix_ms < oldest_end_unix_ms;
    return job.submit_order < before && (!old || request.all()) &&
           HasState(request.states(), job.state) &&
           (request.name().empty() || request.name() == job.name);
  }
  bool IsFull() const { return jobs.size() > static_cast<std::size_t>(limit); }
  // The oldest one that belongs to a full page.
  std::uint64_t Last() const {
    auto last = jobs.rbegin();
    std::advance(last, limit - 1);
    return last->first;
  }
};

ClientService::ClientService(Parts parts, std::string cluster)
    : parts_(parts), cluster_(std::move(cluster)) {}

ClientService::Reactor* ClientService::Begin(Context* context,
                                             const std::function<void(const Call&)>& start) {
  const auto refuse = [context](const grpc::Status& status) {
    Reactor* reactor = context->DefaultReactor();
    reactor->Finish(status);
    return reactor;
  };
  if (const grpc::Status status = parts_.authenticator.Check(*context); !status.ok())
    return refuse(status);
  if (calls_.fetch_add(1) >= kMaxCalls) {
    --calls_;
    ++refused_;
    return refuse({grpc::StatusCode::RESOURCE_EXHAUSTED, "the coordinator is busy; try again"});
  }
  const Call call = UnaryCall::Begin(parts_.loop, calls_);
  start(call);
  return call.get();
}

ClientService::Reactor* ClientService::OnLoop(Context* context,
                                              std::function<void(const Call&)> function) {
  return Begin(context, [this, &function](const Call& call) {
    parts_.loop.Post([call, function = std::move(function)] { function(call); });
  });
}

template <typename Event>
void ClientService::Ask(Event event, const Call& call, std::function<void(const Reply&)> fill) {
  const RequestId request =
      parts_.runtime.Ask(std::move(event), [call, fill = std::move(fill)](const Reply& reply) {
        fill(reply);
        call->End(reply.status);
      });
  call->OnGone([this, request] { parts_.runtime.Forget(request); });
}

void ClientService::EndOnceDurable(const Call& call) {
  parts_.runtime.AfterDurable([call](const Status& durable) { call->End(durable); });
}

void ClientService::BesideLoop(const Call& call, std::function<void()> work) {
  if (pool_.TrySubmit(std::move(work))) return;
  ++refused_;
  parts_.loop.Post([call] { call->End(ResourceExhausted("the coordinator is busy; try again")); });
}

// Parsed off the loop, in the order of arrival. The request is copied, because it may be gone by
// then with its caller.
ClientService::Reactor* ClientService::Submit(Context* context, const v1::SubmitRequest* request,
                                              v1::SubmitResponse* response) {
  return Begin(context, [this, request, response](const Call& call) {
    std::optional<std::uint64_t> index;
    if (request->has_check_index()) index = request->check_index();
    BesideLoop(
        call, [this, call, response, yaml = request->spec_yaml(), key = request->key(), index] {
          SubmitRequested event{.request = 0,
                                .spec_yaml = yaml,
                                .key = key,
                                .new_id = RandomJobId(),
                                .spec = ParseJobSpec(yaml),
                                .check_index = index};
          parts_.loop.Post([this, call, response, event = std::move(event)] {
            if (!call->open()) return;
            Ask(event, call, [response](const Reply& reply) { FillSubmitted(reply, response); });
          });
        });
  });
}

template <typename Accepted, typename Request, typename Response>
void ClientService::AskOfJob(Request event, Response* response, const Call& call) {
  const std::string named = event.job;
  WithJob(named, call,
          [this, event = std::move(event), response, call](const JobView& view) mutable {
            event.job = view.record->id.value;
            Ask(std::move(event), call, [response](const Reply& reply) {
              if (const auto* accepted = std::get_if<Accepted>(&reply.body)) {
                response->set_id(accepted->id.value);
                response->set_state(static_cast<v1::JobState>(static_cast<int>(accepted->state)));
                if constexpr (requires { accepted->changed; })
                  response->set_changed(accepted->changed);
              }
            });
          });
}

ClientService::Reactor* ClientService::Cancel(Context* context, const v1::CancelRequest* request,
                                              v1::CancelResponse* response) {
  return OnLoop(context, [this, request, response](const Call& call) {
    AskOfJob<CancelAccepted>(
        CancelRequested{.request = 0, .job = request->job(), .reason = request->reason()}, response,
        call);
  });
}

ClientService::Reactor* ClientService::Suspend(Context* context, const v1::SuspendRequest* request,
                                               v1::SuspendResponse* response) {
  return OnLoop(context, [this, request, response](const Call& call) {
    AskOfJob<SuspendAccepted>(SuspendRequested{.request = 0,
                                               .job = request->job(),
                                               .by_seconds = request->by_seconds(),
                                               .reason = request->reason()},
                              response, call);
  });
}

ClientService::Reactor* ClientService::Resume(Context* context, const v1::ResumeRequest* request,
                                              v1::ResumeResponse* response) {
  return OnLoop(context, [this, request, response](const Call& call) {
    AskOfJob<ResumeAccepted>(ResumeRequested{.request = 0, .job = request->job()}, response, call);
  });
}

ClientService::Reactor* ClientService::UpdateJob(Context* context,
                                                 const v1::UpdateJobRequest* request,
                                                 v1::UpdateJobResponse* response) {
  return OnLoop(context, [this, request, response](const Call& call) {
    UpdateRequested event{.request = 0, .job = request->job()};
    if (request->has_queue()) event.queue = request->queue();
    if (request->has_priority_class()) event.priority_class = request->priority_class();
    if (request->has_priority()) event.priority = request->priority();
    if (request->has_time_limit_seconds()) event.time_limit_seconds = request->time_limit_seconds();
    if (request->has_begin_unix_ms()) event.begin_unix_ms = request->begin_unix_ms();
    event.force = request->force();
    AskOfJob<UpdateAccepted>(std::move(event), response, call);
  });
}

ClientService::Reactor* ClientService::HoldJob(Context* context, const v1::HoldJobRequest* request,
                                               v1::HoldJobResponse* response) {
  return OnLoop(context, [this, request, response](const Call& call) {
    AskOfJob<HoldAccepted>(
        HoldRequested{.request = 0, .job = request->job(), .reason = request->reason()}, response,
        call);
  });
}

ClientService::Reactor* ClientService::ReleaseJob(Context* context,
                                                  const v1::ReleaseJobRequest* request,
                                                  v1::ReleaseJobResponse* response) {
  return OnLoop(context, [this, request, response](const Call& call) {
    AskOfJob<ReleaseAccepted>(ReleaseRequested{.request = 0, .job = request->job()}, response,
                              call);
  });
}

// The question is taken on the loop, and answered beside it.
ClientService::Reactor* ClientService::ExplainJob(Context* context,
                                                  const v1::ExplainJobRequest* request,
                                                  v1::ExplainJobResponse* response) {
  if (request->spec_yaml().empty()) {
    return OnLoop(context, [this, request, response](const Call& call) {
      WithJob(request->job(), call, [this, response, call](const JobView& view) {
        const JobId id = view.record->id;
        *response->mutable_job() = ToProto(view, JobDetail::kSummary, SystemClock().Now());
        if (view.archived) return EndOnceDurable(call);
        for (std::string& pilot : parts_.pilots_for(id)) response->add_pilots(std::move(pilot));
        AnswerWhy(
            [this, &id](const Now& now) { return parts_.runtime.controller().AskWhy(id, now); },
            response, call);
      });
    });
  }
  return Begin(context, [this, request, response](const Call& call) {
    BesideLoop(call, [this, call, response, yaml = request->spec_yaml()] {
      auto spec = std::make_shared<Result<JobSpec>>(ParseJobSpec(yaml));
      parts_.loop.Post([this, call, response, spec] {
        if (!call->open()) return;
        if (!spec->ok()) return call->End(spec->status());
        AnswerWhy([&](const Now& now) { return parts_.runtime.controller().AskWhy(**spec, now); },
                  response, call);
      });
    });
  });
}

void ClientService::AnswerWhy(const std::function<Question(const Now&)>& ask,
                              v1::ExplainJobResponse* response, const Call& call) {
  if (questions_ == kMaxQuestions) {
    ++refused_;
    return call->End(ResourceExhausted("the coordinator answers other such questions; try again"));
  }
  Question question = ask({SystemClock().Now(), SystemClock().UnixMillis()});
  if (!question.ok()) return call->End(question.status());
  ++questions_;
  const bool taken = answers_.TrySubmit([this, question = *std::move(question), response, call] {
    auto answer = std::make_shared<v1::ExplainJobResponse>(ToProto(*question, Answer(*question)));
    parts_.loop.Post([this, answer, response, call] {
      --questions_;
      if (call->open()) response->MergeFrom(*answer);
      EndOnceDurable(call);
    });
  });
  if (taken) return;
  --questions_;
  call->End(ResourceExhausted("the coordinator plans exports of the schedule; try again"));
}

ClientService::Reactor* ClientService::Drain(Context* context, const v1::DrainRequest* request,
                                             v1::DrainResponse* response) {
  return OnLoop(context, [this, request, response](const Call& call) {
    DrainRequested event{.request = 0,
                         .node = NodeName{request->node()},
                         .by_seconds = request->by_seconds(),
                         .reason = request->reason()};
    Ask(std::move(event), call, [response](const Reply& reply) {
      if (const auto* accepted = std::get_if<DrainAccepted>(&reply.body)) {
        response->set_state(static_cast<v1::NodeState>(static_cast<int>(accepted->state)));
        for (const JobId& job : accepted->jobs) response->add_jobs(job.value);
      }
    });
  });
}

ClientService::Reactor* ClientService::Undrain(Context* context, const v1::UndrainRequest* request,
                                               v1::UndrainResponse* response) {
  return OnLoop(context, [this, request, response](const Call& call) {
    UndrainRequested event{0, NodeName{request->node()}};
    Ask(std::move(event), call, [response](const Reply& reply) {
      if (const auto* accepted = std::get_if<UndrainAccepted>(&reply.body)) {
        response->set_state(static_cast<v1::NodeState>(static_cast<int>(accepted->state)));
      }
    });
  });
}

ClientService::Reactor* ClientService::InjectFault(Context* context,
                                                   const v1::InjectFaultRequest* request,
                                                   v1::InjectFaultResponse* response) {
  return OnLoop(context, [this, request, response](const Call& call) {
    InjectFaultRequested event{.request = 0,
                               .job = request->job(),
                               .rank = request->rank(),
                               .node = NodeName{request->node()},
                               .kind = request->kind(),
                               .argument = request->argument()};
    Ask(std::move(event), call, [response](const Reply& reply) {
      if (const auto* accepted = std::get_if<FaultAccepted>(&reply.body)) {
        response->set_node(accepted->node.value);
        response->set_generation(accepted->generation);
      }
    });
  });
}

ClientService::Reactor* ClientService::VerifyCheckpoints(
    Context* context, const v1::VerifyCheckpointsRequest* request,
    v1::VerifyCheckpointsResponse* response) {
  return OnLoop(context, [this, request, response](const Call& call) {
    WithJob(request->job(), call, [this, response, call](const JobView& view) {
      VerifyRequested event{0, view.record->id.value};
      Ask(std::move(event), call, [response](const Reply& reply) {
        if (const auto* verified = std::get_if<CheckpointsVerified>(&reply.body)) {
          response->set_whole(verified->whole);
          for (const std::string& directory : verified->damaged) response->add_damaged(directory);
        }
      });
    });
  });
}

// Parsed off the loop, as job files are.
ClientService::Reactor* ClientService::ApplyQueues(Context* context,
                                                   const v1::ApplyQueuesRequest* request,
                                                   v1::ApplyQueuesResponse* response) {
  return Begin(context, [this, request, response](const Call& call) {
    BesideLoop(call, [this, call, response, request = *request] {
      const std::string file = request.file().empty() ? "queues.yaml" : request.file();
      QueuesApplyRequested event{.request = 0,
                                 .yaml = request.yaml(),
                                 .expected_version = request.expected_version(),
                                 .check_only = request.check_only(),
                                 .tree = ParseQueueFile(request.yaml(), CutText(file, 256))};
      parts_.loop.Post([this, call, response, event = std::move(event)] {
        if (!call->open()) return;
        Ask(event, call, [response](const Reply& reply) {
          if (const auto* accepted = std::get_if<QueuesAccepted>(&reply.body)) {
            response->set_version(accepted->version);
            for (const std::string& change : accepted->changes) response->add_changes(change);
            for (const std::string& warning : accepted->warnings) response->add_warnings(warning);
          }
        });
      });
    });
  });
}

ClientService::Reactor* ClientService::ShowQueues(Context* context, const v1::ShowQueuesRequest*,
                                                  v1::ShowQueuesResponse* response) {
  return OnLoop(context, [this, response](const Call& call) {
    *response = ToProto(parts_.runtime.controller().Queues());
    EndOnceDurable(call);
  });
}

ClientService::Reactor* ClientService::ShowUsage(Context* context,
                                                 const v1::ShowUsageRequest* request,
                                                 v1::ShowUsageResponse* response) {
  return OnLoop(context, [this, request, response](const Call& call) {
    const Controller& controller = parts_.runtime.controller();
    const QueueDays days = controller.UsageByDay({SystemClock().Now(), SystemClock().UnixMillis()});
    if (Status status = FillUsage(days, *controller.Queues().tree, *request, response);
        !status.ok())
      return call->End(std::move(status));
    EndOnceDurable(call);
  });
}

grpc::ServerWriteReactor<v1::ExportScheduleResponse>* ClientService::ExportSchedule(
    Context* context, const v1::ExportScheduleRequest*) {
  const std::shared_ptr<ExportStream> stream = ExportStream::Begin(exports_);
  if (const grpc::Status status = parts_.authenticator.Check(*context); !status.ok()) {
    stream->End(status);
  } else if (exports_ > 1) {
    ++refused_;
    stream->End({grpc::StatusCode::RESOURCE_EXHAUSTED,
                 "another export of the schedule is under way; try again"});
  } else {
    parts_.loop.Post([this, stream] { Export(stream); });
  }
  return stream.get();
}

// The snapshot is taken on the loop, and planned beside it.
void ClientService::Export(const std::shared_ptr<ExportStream>& stream) {
  auto read =
      parts_.runtime.controller().ReadSchedule({SystemClock().Now(), SystemClock().UnixMillis()});
  const bool taken = answers_.TrySubmit([this, stream, read = std::move(read)] {
    auto bytes = std::make_shared<std::string>(RecordingHeader());
    *bytes += RecordingFrame(ToProto(read->snapshot, read->Known().plan(), read->now.unix_ms));
    parts_.loop.Post([this, stream, bytes] {
      parts_.runtime.AfterDurable([stream, bytes](const Status& durable) {
        durable.ok() ? stream->Send(std::move(*bytes)) : stream->End(ToGrpcStatus(durable));
      });
    });
  });
  // One that has ended meanwhile may still be planned.
  if (!taken) stream->End({grpc::StatusCode::RESOURCE_EXHAUSTED, "the coordinator is busy"});
}

// The controller gets no request of a caller that has gone in the meantime.
void ClientService::WithJob(const std::string& job, const Call& call,
                            std::function<void(const JobView&)> found) {
  parts_.jobs.Find(job, [call, found = std::move(found)](const Result<JobView>& view) {
    if (!call->open() || !view.ok()) return call->End(view.status());
    found(*view);
  });
}

ClientService::Reactor* ClientService::GetJob(Context* context, const v1::GetJobRequest* request,
                                              v1::Job* response) {
  return OnLoop(context, [this, request, response](const Call& call) {
    WithJob(request->job(), call, [this, response, call](const JobView& view) {
      *response = ToProto(view, JobDetail::kFull, SystemClock().Now());
      EndOnceDurable(call);
    });
  });
}

ClientService::Reactor* ClientService::ListJobs(Context* context,
                                                const v1::ListJobsRequest* request,
                                                v1::ListJobsResponse* response) {
  return OnLoop(context, [this, request, response](const Call& call) {
    const auto page = std::make_shared<JobPage>(JobPage{.request = *request, .response = response});
    if (Status status = page->Begin(); !status.ok()) return call->End(std::move(status));
    const Controller& controller = parts_.runtime.controller();
    const TimePoint now = SystemClock().Now();
    const std::vector<JobView> jobs = controller.Jobs();
    for (auto view = jobs.rbegin(); view != jobs.rend() && !page->IsFull(); ++view)
      if (page->Takes(*view->record))
        page->jobs[view->record->submit_order] = ToProto(*view, JobDetail::kSummary, now);
    *response->mutable_cluster() = ToProto(controller.ClusterGoodput(now));
    if (request->all() && controller.archived_jobs() > 0) return AddArchived(page, call);
    EndPage(*page, call);
  });
}

// By pages of the store, until the page of the call is full or begins before the store's rest.
void ClientService::AddArchived(const std::shared_ptr<JobPage>& page, const Call& call) {
  auto taken = [this, page, call](const Result<std::vector<ArchivedRecords>>& read) {
    if (!call->open()) return call->End(OkStatus());
    if (!read.ok()) return call->End(read.status());
    for (const ArchivedRecords& records : *read) {
      page->archive_before = records.job.submit_order;
      if (page->Takes(records.job))
        page->jobs.emplace(records.job.submit_order,
                           ToProto(ArchivedJobView(records).view(), JobDetail::kSummary, {}));
    }
    const bool more = static_cast<int>(read->size()) == CommitQueue::kPageArchived;
    const bool wanted = !page->IsFull() || page->archive_before > page->Last();
    if (more && wanted) return AddArchived(page, call);
    EndPage(*page, call);
  };
  ArchiveQuery query{.before_order = page->archive_before, .limit = CommitQueue::kPageArchived};
  parts_.store.ReadArchive(std::move(query), [&loop = parts_.loop, taken = std::move(taken)](
                                                 Result<std::vector<ArchivedRecords>> read) {
    auto shared = std::make_shared<Result<std::vector<ArchivedRecords>>>(std::move(read));
    loop.Post([taken, shared] { taken(*shared); });
  });
}

void ClientService::EndPage(JobPage& page, const Call& call) {
  int room = page.limit;
  for (auto job = page.jobs.rbegin(); job != page.jobs.rend() && room > 0; ++job, --room) {
    *page.response->add_jobs() = std::move(job->second);
    page.last_listed = job->first;
  }
  if (page.jobs.size() > static_cast<std::size_t>(page.limit))
    page.response->set_next_page_token(std::to_string(page.last_listed));
  EndOnceDurable(call);
}

ClientService::Reactor* ClientService::ListNodes(Context* context,
                                                 const v1::ListNodesRequest* request,
                                                 v1::ListNodesResponse* response) {
  return OnLoop(context, [this, request, response](const Call& call) {
    const Result<int> limit = PageLimit(request->limit());
    if (!limit.ok()) return call->End(limit.status());
    if (request->states_size() > kMaxStates) return call->End(TooManyStates());
    for (const NodeView& view : parts_.runtime.controller().Nodes()) {
      const std::string& name = view.record->name.value;
      if (name <= request->page_token() || !HasState(request->states(), view.record->state))
        continue;
      if (response->nodes_size() == *limit) {
        response->set_next_page_token(response->nodes(*limit - 1).name());
        break;
      }
      *response->add_nodes() = ToProto(view);
    }
    EndOnceDurable(call);
  });
}

ClientService::Reactor* ClientService::ListEvents(Context* context,
                                                  const v1::ListEventsRequest* request,
                                                  v1::ListEventsResponse* response) {
  return OnLoop(context, [this, request, response](const Call& call) {
    const Result<int> limit = PageLimit(request->limit(), kMaxEvents);
    if (!limit.ok()) return call->End(limit.status());
    EventQuery query{.job = {},
                     .after_seq = std::min<std::uint64_t>(request->after_seq(), kLastSeq),
                     .limit = *limit};
    if (request->job().empty()) return AnswerEvents(std::move(query), response, call);
    WithJob(request->job(), call, [this, query, response, call](const JobView& view) mutable {
      query.job = view.record->id;
      AnswerEvents(std::move(query), response, call);
    });
  });
}

void ClientService::AnswerEvents(EventQuery query, v1::ListEventsResponse* response,
                                 const Call& call) {
  const auto& kept = parts_.runtime.controller().Events();
  const bool all_in_memory = !kept.empty() && kept.front().seq <= query.after_seq + 1;
  if (!all_in_memory) return ListStoredEvents(std::move(query), response, call);
  auto event = std::upper_bound(
      kept.begin(), kept.end(), query.after_seq,
      [](std::uint64_t seq, const EventRecord& record) { return seq < record.seq; });
  for (; event != kept.end() && response->events_size() < query.limit; ++event) {
    if (query.job.empty() || event->job == query.job) *response->add_events() = ToProto(*event);
  }
  EndOnceDurable(call);
}

// The store contains only durable events, so there is no need to wait. A caller may disconnect
// while the store reads, and then this service may end before the store: its thread only posts.
void ClientService::ListStoredEvents(EventQuery query, v1::ListEventsResponse* response,
                                     const Call& call) {
  const auto convert = [this, response, call](const std::vector<EventRecord>& events) {
    auto found = std::make_shared<v1::ListEventsResponse>();
    for (const EventRecord& event : events) *found->add_events() = ToProto(event);
    parts_.loop.Post([response, call, found] {
      if (call->open()) response->Swap(found.get());
      call->End(OkStatus());
    });
  };
  parts_.store.ReadEvents(std::move(query), [this, &loop = parts_.loop, call,
                                             convert](Result<std::vector<EventRecord>> read) {
    auto events = std::make_shared<Result<std::vector<EventRecord>>>(std::move(read));
    loop.Post([this, call, convert, events] {
      if (!events->ok()) return call->End(events->status());
      if (call->open()) BesideLoop(call, [convert, events] { convert(**events); });
    });
  });
}

ClientService::Reactor* ClientService::ReadLog(Context* context, const v1::ReadLogRequest* request,
                                               v1::ReadLogResponse* response) {
  return OnLoop(context, [this, request, response](const Call& call) {
    WithJob(request->job(), call,
            [this, call, response, rank = request->rank(), generation = request->generation(),
             offset = request->offset()](const JobView& view) {
              const Result<LogLocation> location =
                  parts_.runtime.controller().LocateLog(view, rank, generation);
              if (!location.ok()) return call->End(location.status());
              AnswerLog(*location, rank, offset, response, call);
            });
  });
}

void ClientService::AnswerLog(const LogLocation& location, int rank, std::int64_t offset,
                              v1::ReadLogResponse* response, const Call& call) {
  parts_.workers.ReadLog(location, rank, offset,
                         [response, call, final = location.final](Result<v1::LogChunk> chunk) {
                           if (!call->open()) return;
                           if (!chunk.ok()) return call->End(chunk.status());
                           response->set_data(std::move(*chunk->mutable_data()));
                           response->set_next_offset(chunk->next_offset());
                           response->set_at_end(chunk->at_end());
                           response->set_final(final);
                           response->set_path(chunk->path());
                           call->End(OkStatus());
                         });
}

ClientService::Reactor* ClientService::Version(Context* context, const v1::VersionRequest*,
                                               v1::VersionResponse* response) {
  return OnLoop(context, [this, response](const Call& call) {
    response->set_version(kVersion);
    response->set_protocol_version(kProtocolVersion);
    response->set_cluster(cluster_);
    call->End(OkStatus());
  });
}

grpc::ServerWriteReactor<v1::WatchUpdate>* ClientService::Watch(Context* context,
                                                                const v1::WatchRequest* request) {
  if (const grpc::Status status = parts_.authenticator.Check(*context); !status.ok()) {
    return new RefusedWatch(status);
  }
  auto stream = std::make_shared<WatchStream>(parts_.loop, parts_.watches,
                                              PeerCertificate(*context->auth_context()));
  stream->Begin();
  parts_.loop.Post([this, stream, request = *request] {
    parts_.jobs.Find(request.job(), [this, stream, request](const Result<JobView>& view) {
      if (!view.ok()) return stream->End(view.status());
      if (!view->archived) return parts_.watches.Add(stream, request);
      v1::WatchUpdate last;
      *last.mutable_job() = ToProto(*view, JobDetail::kFull, SystemClock().Now());
      stream->Write(std::move(last));
      stream->End(OkStatus());
    });
  });
  return stream.get();
}

}  // namespace muster
