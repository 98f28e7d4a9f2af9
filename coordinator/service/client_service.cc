#include "coordinator/service/client_service.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <memory>
#include <utility>
#include <variant>

#include "common/base/check.h"
#include "common/base/version.h"
#include "common/job_spec/parse.h"
#include "common/job_spec/queue_names.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/peer_certificate.h"
#include "common/security/encoding.h"
#include "common/telemetry/log.h"
#include "common/wire/codec.h"
#include "coordinator/replay/recording.h"
#include "coordinator/replay/schedule_record.h"
#include "coordinator/service/client_requests.h"
#include "coordinator/service/conversions.h"
#include "coordinator/service/job_page.h"
#include "coordinator/service/list_limits.h"
#include "coordinator/store/commit_queue.h"

namespace muster {
namespace {

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

// Nodes say which job has a device; of jobs that the filter does not take they only say that one
// has.
void HideJobs(const JobFilter& filter, const Controller& controller, v1::ListNodesResponse* nodes) {
  for (v1::Node& node : *nodes->mutable_nodes())
    for (v1::AllocatedDevice& device : *node.mutable_allocated())
      if (!controller.FindJob(device.job(), filter).ok()) device.clear_job();
}

Status FillNodes(const Controller& controller, const JobFilter& filter,
                 const v1::ListNodesRequest& request, v1::ListNodesResponse* response) {
  MUSTER_ASSIGN_OR_RETURN(const int limit, PageLimit(request.limit()));
  if (request.states_size() > kMaxStates) return TooManyStates();
  for (const NodeView& view : controller.Nodes()) {
    const std::string& name = view.record->name.value;
    if (name <= request.page_token() || !HasState(request.states(), view.record->state)) continue;
    if (response->nodes_size() == limit) {
      response->set_next_page_token(response->nodes(limit - 1).name());
      break;
    }
    *response->add_nodes() = ToProto(view);
  }
  if (filter) HideJobs(filter, controller, response);
  return OkStatus();
}

// With users the cluster's token admits no caller, so nodes that need it must have gone before.
Status CheckReadyForUsers(bool by_certificate, const std::vector<std::string>& nodes) {
  if (!by_certificate)
    return FailedPrecondition(
        "a cluster with users does not admit its token, and this call came with it\n  next: "
        "muster init, start the coordinator with --tls-listen, and apply the file with an admin's "
        "certificate (--coordinator ADDRESS --tls DIR/security/admin)");
  if (nodes.empty()) return OkStatus();
  return FailedPrecondition(
      "a cluster with users does not admit its token, and node " + nodes.front() +
      " is connected with it" +
      (nodes.size() > 1 ? ", " + std::to_string(nodes.size()) + " in all" : std::string()) +
      "\n  next: let each node join by a certificate (docs/security.md)");
}

void FillFault(const Reply& reply, v1::InjectFaultResponse* response) {
  const auto* accepted = std::get_if<FaultAccepted>(&reply.body);
  if (accepted == nullptr) return;
  response->set_node(accepted->node.value);
  response->set_generation(accepted->generation);
}

template <typename Accepted, typename Response>
void FillChanges(const Reply& reply, Response* response) {
  const auto* accepted = std::get_if<Accepted>(&reply.body);
  if (accepted == nullptr) return;
  response->set_version(accepted->version);
  for (const std::string& change : accepted->changes) response->add_changes(change);
  if constexpr (requires { accepted->warnings; })
    for (const std::string& warning : accepted->warnings) response->add_warnings(warning);
}

// The store contains only durable entries, so there is no need to wait.
void AnswerAudit(Store& store, EventLoop& loop, const AuditQuery& query,
                 v1::ListAuditResponse* response, const std::shared_ptr<UnaryCall>& call) {
  store.ReadAudit(query, [&loop, response, call](Result<std::vector<std::string>> read) {
    auto lines = std::make_shared<Result<std::vector<std::string>>>(std::move(read));
    loop.Post([response, call, lines] {
      if (call->open() && lines->ok())
        for (std::string& line : **lines) response->add_lines(std::move(line));
      call->End(lines->status());
    });
  });
}

void AnswerLog(WorkerService& workers, const LogLocation& location, int rank, std::int64_t offset,
               v1::ReadLogResponse* response, const std::shared_ptr<UnaryCall>& call) {
  workers.ReadLog(location, rank, offset,
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

}  // namespace

ClientService::ClientService(Parts parts, std::string cluster)
    : parts_(parts), cluster_(std::move(cluster)), calls_(parts.calls) {}

void ClientService::BesideLoop(const Call& call, std::function<void()> work) {
  if (pool_.TrySubmit(std::move(work))) return;
  calls_.CountRefused();
  parts_.loop.Post([call] { call->End(ResourceExhausted("the coordinator is busy; try again")); });
}

// Parsed off the loop, in the order of arrival. The request is copied, because it may be gone by
// then with its caller.
ClientService::Reactor* ClientService::Submit(Context* context, const v1::SubmitRequest* request,
                                              v1::SubmitResponse* response) {
  return calls_.Begin(
      context, ClientOperation::kSubmit, [this, request, response](const Call& call) {
        BesideLoop(call, [this, call, response, request = *request] {
          SubmitRequested event = EventOf(request, call->actor(), RandomJobId());
          parts_.loop.Post([this, call, response, event = std::move(event)] {
            if (!call->open() || !calls_.guard().PermitsSubmit(call, event.spec)) return;
            calls_.Ask(event, call,
                       [response](const Reply& reply) { FillSubmitted(reply, response); });
          });
        });
      });
}

template <typename Accepted, typename Request, typename Response>
void ClientService::AskOfJob(Request event, Response* response, const Call& call) {
  const std::string named = event.job;
  WithJob(named, call,
          [this, event = std::move(event), response, call](const JobView& view) mutable {
            if constexpr (requires { event.queue; }) {
              if (event.queue && !calls_.guard().PermitsSubmit(call, *event.queue)) return;
            }
            event.job = view.record->id.value;
            event.actor = call->actor();
            calls_.Ask(std::move(event), call, [response](const Reply& reply) {
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
  return calls_.OnLoop(context, ClientOperation::kCancel,
                       [this, request, response](const Call& call) {
                         AskOfJob<CancelAccepted>(EventOf(*request), response, call);
                       });
}

ClientService::Reactor* ClientService::Suspend(Context* context, const v1::SuspendRequest* request,
                                               v1::SuspendResponse* response) {
  return calls_.OnLoop(context, ClientOperation::kSuspend,
                       [this, request, response](const Call& call) {
                         AskOfJob<SuspendAccepted>(EventOf(*request), response, call);
                       });
}

ClientService::Reactor* ClientService::Resume(Context* context, const v1::ResumeRequest* request,
                                              v1::ResumeResponse* response) {
  return calls_.OnLoop(context, ClientOperation::kResume,
                       [this, request, response](const Call& call) {
                         AskOfJob<ResumeAccepted>(EventOf(*request), response, call);
                       });
}

ClientService::Reactor* ClientService::UpdateJob(Context* context,
                                                 const v1::UpdateJobRequest* request,
                                                 v1::UpdateJobResponse* response) {
  return calls_.OnLoop(context, ClientOperation::kUpdateJob,
                       [this, request, response](const Call& call) {
                         AskOfJob<UpdateAccepted>(EventOf(*request), response, call);
                       });
}

ClientService::Reactor* ClientService::HoldJob(Context* context, const v1::HoldJobRequest* request,
                                               v1::HoldJobResponse* response) {
  return calls_.OnLoop(context, ClientOperation::kHoldJob,
                       [this, request, response](const Call& call) {
                         AskOfJob<HoldAccepted>(EventOf(*request), response, call);
                       });
}

ClientService::Reactor* ClientService::ReleaseJob(Context* context,
                                                  const v1::ReleaseJobRequest* request,
                                                  v1::ReleaseJobResponse* response) {
  return calls_.OnLoop(context, ClientOperation::kReleaseJob,
                       [this, request, response](const Call& call) {
                         AskOfJob<ReleaseAccepted>(EventOf(*request), response, call);
                       });
}

// The question is taken on the loop, and answered beside it.
ClientService::Reactor* ClientService::ExplainJob(Context* context,
                                                  const v1::ExplainJobRequest* request,
                                                  v1::ExplainJobResponse* response) {
  if (request->spec_yaml().empty()) {
    return calls_.OnLoop(
        context, ClientOperation::kExplainJob, [this, request, response](const Call& call) {
          WithJob(request->job(), call, [this, response, call](const JobView& view) {
            const JobId id = view.record->id;
            *response->mutable_job() = ToProto(view, JobDetail::kSummary, SystemClock().Now());
            if (view.archived) return calls_.EndOnceDurable(call);
            for (std::string& pilot : parts_.pilots_for(id)) response->add_pilots(std::move(pilot));
            AnswerWhy(
                [this, &id](const Now& now) { return parts_.runtime.controller().AskWhy(id, now); },
                response, call);
          });
        });
  }
  return calls_.Begin(
      context, ClientOperation::kExplainJob, [this, request, response](const Call& call) {
        BesideLoop(call, [this, call, response, yaml = request->spec_yaml()] {
          auto spec = std::make_shared<Result<JobSpec>>(ParseJobSpec(yaml));
          parts_.loop.Post([this, call, response, spec] {
            if (!call->open() || !calls_.guard().PermitsSubmit(call, *spec)) return;
            AnswerWhy(
                [&](const Now& now) {
                  return parts_.runtime.controller().AskWhy(
                      **spec, call->actor().user(), now, calls_.guard().FilterFor(call->actor()));
                },
                response, call);
          });
        });
      });
}

void ClientService::AnswerWhy(const std::function<Question(const Now&)>& ask,
                              v1::ExplainJobResponse* response, const Call& call) {
  if (questions_ == kMaxQuestions) {
    calls_.CountRefused();
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
      calls_.EndOnceDurable(call);
    });
  });
  if (taken) return;
  --questions_;
  call->End(ResourceExhausted("the coordinator plans exports of the schedule; try again"));
}

ClientService::Reactor* ClientService::Drain(Context* context, const v1::DrainRequest* request,
                                             v1::DrainResponse* response) {
  return calls_.OnLoop(
      context, ClientOperation::kDrain, [this, request, response](const Call& call) {
        calls_.Ask(EventOf(*request, call->actor()), call, [response](const Reply& reply) {
          if (const auto* accepted = std::get_if<DrainAccepted>(&reply.body)) {
            response->set_state(static_cast<v1::NodeState>(static_cast<int>(accepted->state)));
            for (const JobId& job : accepted->jobs) response->add_jobs(job.value);
          }
        });
      });
}

ClientService::Reactor* ClientService::Undrain(Context* context, const v1::UndrainRequest* request,
                                               v1::UndrainResponse* response) {
  return calls_.OnLoop(
      context, ClientOperation::kUndrain, [this, request, response](const Call& call) {
        calls_.Ask(EventOf(*request, call->actor()), call, [response](const Reply& reply) {
          if (const auto* accepted = std::get_if<UndrainAccepted>(&reply.body)) {
            response->set_state(static_cast<v1::NodeState>(static_cast<int>(accepted->state)));
          }
        });
      });
}

ClientService::Reactor* ClientService::InjectFault(Context* context,
                                                   const v1::InjectFaultRequest* request,
                                                   v1::InjectFaultResponse* response) {
  return calls_.OnLoop(
      context, ClientOperation::kInjectFault, [this, request, response](const Call& call) {
        const auto ask = [this, call, response](InjectFaultRequested order) {
          calls_.Ask(std::move(order), call,
                     [response](const Reply& reply) { FillFault(reply, response); });
        };
        InjectFaultRequested event = EventOf(*request, call->actor());
        if (event.job.empty()) return calls_.guard().Permits(call) ? ask(std::move(event)) : void();
        WithJob(request->job(), call, [ask, event](const JobView& view) mutable {
          event.job = view.record->id.value;
          ask(std::move(event));
        });
      });
}

ClientService::Reactor* ClientService::VerifyCheckpoints(
    Context* context, const v1::VerifyCheckpointsRequest* request,
    v1::VerifyCheckpointsResponse* response) {
  return calls_.OnLoop(
      context, ClientOperation::kVerifyCheckpoints, [this, request, response](const Call& call) {
        WithJob(request->job(), call, [this, response, call](const JobView& view) {
          VerifyRequested event{.actor = call->actor(), .job = view.record->id.value};
          calls_.Ask(std::move(event), call, [response](const Reply& reply) {
            if (const auto* verified = std::get_if<CheckpointsVerified>(&reply.body)) {
              response->set_whole(verified->whole);
              for (const std::string& directory : verified->damaged)
                response->add_damaged(directory);
            }
          });
        });
      });
}

// Parsed off the loop, as job files are.
ClientService::Reactor* ClientService::ApplyQueues(Context* context,
                                                   const v1::ApplyQueuesRequest* request,
                                                   v1::ApplyQueuesResponse* response) {
  return calls_.Begin(context, ClientOperation::kApplyQueues,
                      [this, request, response](const Call& call) {
                        BesideLoop(call, [this, call, response, request = *request] {
                          QueuesApplyRequested event = EventOf(request, call->actor());
                          parts_.loop.Post([this, call, response, event = std::move(event)] {
                            if (!call->open() || !calls_.guard().Permits(call)) return;
                            calls_.Ask(event, call, [response](const Reply& reply) {
                              FillChanges<QueuesAccepted>(reply, response);
                            });
                          });
                        });
                      });
}

ClientService::Reactor* ClientService::ShowQueues(Context* context, const v1::ShowQueuesRequest*,
                                                  v1::ShowQueuesResponse* response) {
  return calls_.OnLoop(context, ClientOperation::kShowQueues, [this, response](const Call& call) {
    *response = ToProto(parts_.runtime.controller().Queues());
    calls_.EndOnceDurable(call);
  });
}

ClientService::Reactor* ClientService::ShowUsage(Context* context,
                                                 const v1::ShowUsageRequest* request,
                                                 v1::ShowUsageResponse* response) {
  return calls_.OnLoop(
      context, ClientOperation::kShowUsage, [this, request, response](const Call& call) {
        const Controller& controller = parts_.runtime.controller();
        const QueueDays days =
            controller.UsageByDay({SystemClock().Now(), SystemClock().UnixMillis()});
        Status status = FillUsage(days, *controller.Queues().tree, *request,
                                  calls_.guard().UsageSeenBy(call->actor()), response);
        status.ok() ? calls_.EndOnceDurable(call) : call->End(std::move(status));
      });
}

grpc::ServerWriteReactor<v1::ExportScheduleResponse>* ClientService::ExportSchedule(
    Context* context, const v1::ExportScheduleRequest*) {
  const std::shared_ptr<ExportStream> stream = ExportStream::Begin(exports_);
  const Result<Actor> actor = parts_.authenticator.Identify(*context);
  if (!actor.ok()) {
    stream->End(ToGrpcStatus(actor.status()));
    return stream.get();
  }
  parts_.loop.Post([this, stream, actor = *actor] {
    Status may = calls_.guard().Check(actor, ClientOperation::kExportSchedule);
    if (may.ok() && exports_ > 1) {
      calls_.CountRefused();
      may = ResourceExhausted("another export of the schedule is under way; try again");
    }
    may.ok() ? Export(stream) : stream->End(ToGrpcStatus(may));
  });
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
  parts_.jobs.Find(job, calls_.guard().FilterFor(call->actor()),
                   [this, call, found = std::move(found)](const Result<JobView>& view) {
                     if (!call->open() || !view.ok()) return call->End(view.status());
                     if (calls_.guard().PermitsFor(call, *view->record)) found(*view);
                   });
}

ClientService::Reactor* ClientService::GetJob(Context* context, const v1::GetJobRequest* request,
                                              v1::Job* response) {
  return calls_.OnLoop(context, ClientOperation::kGetJob,
                       [this, request, response](const Call& call) {
                         WithJob(request->job(), call, [this, response, call](const JobView& view) {
                           *response = ToProto(view, JobDetail::kFull, SystemClock().Now());
                           calls_.EndOnceDurable(call);
                         });
                       });
}

ClientService::Reactor* ClientService::ListJobs(Context* context,
                                                const v1::ListJobsRequest* request,
                                                v1::ListJobsResponse* response) {
  return calls_.OnLoop(
      context, ClientOperation::kListJobs, [this, request, response](const Call& call) {
        const auto page =
            std::make_shared<JobPage>(*request, calls_.guard().FilterFor(call->actor()));
        if (Status status = page->Begin(); !status.ok()) return call->End(std::move(status));
        const Controller& controller = parts_.runtime.controller();
        const TimePoint now = SystemClock().Now();
        const std::vector<JobView> jobs = controller.Jobs();
        for (auto view = jobs.rbegin(); view != jobs.rend() && !page->IsFull(); ++view)
          page->Add(*view, now);
        *response->mutable_cluster() = ToProto(controller.ClusterGoodput(now));
        const auto end = [this, page, response, call](const Status& read) {
          if (!call->open() || !read.ok()) return call->End(read);
          page->Fill(response);
          calls_.EndOnceDurable(call);
        };
        if (!request->all() || controller.archived_jobs() == 0) return end(OkStatus());
        page->AddArchived(
            parts_.store, parts_.loop, [call] { return call->open(); }, end);
      });
}

ClientService::Reactor* ClientService::ListNodes(Context* context,
                                                 const v1::ListNodesRequest* request,
                                                 v1::ListNodesResponse* response) {
  return calls_.OnLoop(
      context, ClientOperation::kListNodes, [this, request, response](const Call& call) {
        Status filled = FillNodes(parts_.runtime.controller(),
                                  calls_.guard().FilterFor(call->actor()), *request, response);
        if (!filled.ok()) return call->End(std::move(filled));
        calls_.EndOnceDurable(call);
      });
}

ClientService::Reactor* ClientService::ListEvents(Context* context,
                                                  const v1::ListEventsRequest* request,
                                                  v1::ListEventsResponse* response) {
  return calls_.OnLoop(
      context, ClientOperation::kListEvents, [this, request, response](const Call& call) {
        const Result<int> limit = PageLimit(request->limit(), kMaxEvents);
        if (!limit.ok()) return call->End(limit.status());
        EventQuery query{.job = {},
                         .after_seq = std::min<std::uint64_t>(request->after_seq(), kLastSeq),
                         .limit = *limit};
        if (request->job().empty()) {
          if (calls_.guard().Permits(call)) AnswerEvents(std::move(query), response, call);
          return;
        }
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
  calls_.EndOnceDurable(call);
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
  return calls_.OnLoop(
      context, ClientOperation::kReadLog, [this, request, response](const Call& call) {
        WithJob(request->job(), call,
                [this, call, response, rank = request->rank(), generation = request->generation(),
                 offset = request->offset()](const JobView& view) {
                  const Result<LogLocation> location =
                      parts_.runtime.controller().LocateLog(view, rank, generation);
                  if (!location.ok()) return call->End(location.status());
                  AnswerLog(parts_.workers, *location, rank, offset, response, call);
                });
      });
}

ClientService::Reactor* ClientService::Version(Context* context, const v1::VersionRequest*,
                                               v1::VersionResponse* response) {
  return calls_.OnLoop(context, ClientOperation::kVersion, [this, response](const Call& call) {
    response->set_version(kVersion);
    response->set_protocol_version(kProtocolVersion);
    response->set_cluster(cluster_);
    response->set_store(parts_.store_kind);
    for (const NamedVersions& row : OwnVersions()) *response->add_versions() = ToProto(row);
    call->End(OkStatus());
  });
}

grpc::ServerWriteReactor<v1::WatchUpdate>* ClientService::Watch(Context* context,
                                                                const v1::WatchRequest* request) {
  const Result<Actor> actor = parts_.authenticator.Identify(*context);
  if (!actor.ok()) return new RefusedWatch(ToGrpcStatus(actor.status()));
  auto stream = std::make_shared<WatchStream>(parts_.loop, parts_.watches, *actor,
                                              PeerCertificate(*context->auth_context()));
  stream->Begin();
  parts_.loop.Post([this, stream, request = *request] {
    const Status status = calls_.guard().Check(stream->actor(), ClientOperation::kWatch);
    if (!status.ok()) return stream->End(status);
    parts_.jobs.Find(request.job(), calls_.guard().FilterFor(stream->actor()),
                     [this, stream, request](const Result<JobView>& view) mutable {
                       if (!view.ok()) return stream->End(view.status());
                       request.set_job(view->record->id.value);
                       if (!view->archived) return parts_.watches.Add(stream, request);
                       v1::WatchUpdate last;
                       *last.mutable_job() = ToProto(*view, JobDetail::kFull, SystemClock().Now());
                       stream->Write(std::move(last));
                       stream->End(OkStatus());
                     });
  });
  return stream.get();
}

ClientService::Reactor* ClientService::WhoAmI(Context* context, const v1::WhoAmIRequest*,
                                              v1::WhoAmIResponse* response) {
  return calls_.OnLoop(context, ClientOperation::kWhoAmI, [this, response](const Call& call) {
    FillWhoAmI(call->actor(), *parts_.runtime.controller().Users().users, response);
    response->set_cluster(parts_.authenticator.cluster());
    call->End(OkStatus());
  });
}

// Parsed off the loop, as job files are.
ClientService::Reactor* ClientService::ApplyUsers(Context* context,
                                                  const v1::ApplyUsersRequest* request,
                                                  v1::ApplyUsersResponse* response) {
  const bool by_certificate = PeerCertificate(*context->auth_context()).has_value();
  return calls_.Begin(context, ClientOperation::kApplyUsers, [&](const Call& call) {
    BesideLoop(call, [this, call, response, by_certificate, request = *request] {
      UsersApplyRequested event = EventOf(request, call->actor());
      parts_.loop.Post([this, call, response, by_certificate, event = std::move(event)] {
        if (!call->open() || !calls_.guard().Permits(call)) return;
        if (!event.check_only) {
          const Status ready = CheckReadyForUsers(by_certificate, parts_.workers.NodesWithToken());
          if (!ready.ok()) return call->End(ready);
        }
        calls_.Ask(event, call,
                   [response](const Reply& reply) { FillChanges<UsersAccepted>(reply, response); });
      });
    });
  });
}

ClientService::Reactor* ClientService::ShowUsers(Context* context, const v1::ShowUsersRequest*,
                                                 v1::ShowUsersResponse* response) {
  return calls_.OnLoop(context, ClientOperation::kShowUsers, [this, response](const Call& call) {
    *response = ToProto(parts_.runtime.controller().Users());
    calls_.EndOnceDurable(call);
  });
}

ClientService::Reactor* ClientService::ListAudit(Context* context,
                                                 const v1::ListAuditRequest* request,
                                                 v1::ListAuditResponse* response) {
  return calls_.OnLoop(
      context, ClientOperation::kListAudit, [this, request, response](const Call& call) {
        const Result<int> limit = PageLimit(request->limit());
        if (!limit.ok()) return call->End(limit.status());
        response->set_newest_seq(parts_.runtime.controller().audit_entries());
        const AuditQuery query{.after_seq = std::min<std::uint64_t>(request->after_seq(), kLastSeq),
                               .limit = *limit};
        AnswerAudit(parts_.store, parts_.loop, query, response, call);
      });
}

}  // namespace muster
