#include "coordinator/page/page_routes.h"

#include <charconv>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "common/security/encoding.h"
#include "common/telemetry/query.h"
#include "coordinator/page/page_assets.h"

namespace muster {
namespace {

// Bytes of a log that is read from its end.
constexpr std::int64_t kTailBytes = 64 << 10;

std::string_view TypeOf(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".svg")) return "image/svg+xml";
  return "text/javascript; charset=utf-8";
}

HttpResponse AssetResponse(std::string_view name) {
  const PageAsset& asset = FindPageAsset(name);
  return {.content_type = std::string(TypeOf(name)),
          .body = std::string(asset.text),
          .content_policy = name.ends_with(".html") ? kPagePolicy : kNoContentPolicy};
}

HttpResponse Refusal(const Status& status) {
  const int code = status.code() == StatusCode::kNotFound           ? 404
                   : status.code() == StatusCode::kInvalidArgument  ? 400
                   : status.code() == StatusCode::kPermissionDenied ? 403
                                                                    : 503;
  return {.status = code, .body = status.message() + "\n"};
}

Status CheckKey(const HttpRequest& request, const std::string& key) {
  if (request.peer || EqualInConstantTime(request.bearer, key)) return OkStatus();
  return PermissionDenied(
      request.bearer.empty() ? "this needs the page's key; 'muster page' prints the address with it"
                             : "the page's key is not valid: a coordinator makes a new one "
                               "when it starts; 'muster page' prints the address with it");
}

Result<std::int64_t> NumberOf(std::string_view query, std::string_view name,
                              std::int64_t otherwise) {
  const std::optional<std::string> text = QueryValue(query, name);
  if (!text) return otherwise;
  std::int64_t number = 0;
  const auto end = std::from_chars(text->data(), text->data() + text->size(), number);
  if (end.ec == std::errc() && end.ptr == text->data() + text->size()) return number;
  return InvalidArgument(std::string(name) + "=" + *text + " is not a whole number");
}

// The key's holder may see all.
PageViewer ViewerOf(const PageContext& context, const HttpRequest& request) {
  return request.peer ? context.viewer_of(*request.peer) : PageViewer();
}

// What decides who may see the job of a stream, as of its last time in memory or, of an archived
// job, in the store: nothing changes there. Without an id: the stream is of the cluster.
Result<JobRecord> SeenPartOf(const Result<JobView>& view) {
  if (!view.ok()) return view.status();
  JobRecord part;
  part.id = view->record->id;
  part.owner = view->record->owner;
  part.queue = view->record->queue;
  return part;
}

Status CheckStillSees(const Controller& controller, const JobFilter& sees, JobRecord& job) {
  const Result<JobView> live = controller.FindJob(job.id.value);
  if (live.ok() && live->record->id == job.id)
    job = *SeenPartOf(live);
  else if (controller.FindArchived(job.id.value) != job.id)
    return NotFound("job " + job.id.value + " was deleted");
  if (!sees || sees(job)) return OkStatus();
  return PermissionDenied("the viewer may not see the job any more");
}

// A stream ends also once its viewer may see more, or less, than when it began.
void AddViewerCheck(const PageContext& context, JobRecord job, HttpRequest& request) {
  if (!request.peer) return;
  request.recheck = [context, job = std::move(job), request,
                     user = ViewerOf(context, request).user]() mutable -> Status {
    MUSTER_RETURN_IF_ERROR(request.recheck());
    const PageViewer viewer = ViewerOf(context, request);
    if (viewer.user != user) return PermissionDenied("the viewer's roles have changed");
    return job.id.empty() ? OkStatus() : CheckStillSees(context.controller, viewer.sees, job);
  };
}

void AddViewer(const PageContext& context, const JobRecord& job, HttpRequest request,
               std::shared_ptr<HttpStream> stream) {
  AddViewerCheck(context, job, request);
  context.feeds.Add(job.id, ViewerOf(context, request), request, std::move(stream));
}

// Calls `found` once: at once, or for an archived job when the store has answered, which alone
// knows whose it is.
void FindStreamed(const PageContext& context, const HttpRequest& request,
                  const std::function<void(const Result<JobRecord>&)>& found) {
  if (const Status status = CheckKey(request, context.key); !status.ok()) return found(status);
  const std::optional<std::string> name = QueryValue(request.query, "job");
  if (!name) return found(JobRecord());
  JobFilter sees = ViewerOf(context, request).sees;
  if (context.controller.FindArchived(*name, sees).empty())
    return found(SeenPartOf(context.controller.FindJob(*name, sees)));
  context.find_job(*name, std::move(sees),
                   [found](const Result<JobView>& view) { found(SeenPartOf(view)); });
}

void OpenStream(const PageContext& context, const HttpRequest& request,
                const std::shared_ptr<HttpStream>& stream, const HttpResponder& reply) {
  FindStreamed(context, request, [context, request, stream, reply](const Result<JobRecord>& job) {
    if (!job.ok()) return reply(Refusal(job.status()));
    AddViewer(context, *job, request, stream);
    reply({});
  });
}

struct LogQuestion {
  int rank = 0;
  std::int64_t generation = 0;
  std::int64_t offset = 0;
};

Result<LogQuestion> QuestionOf(const PageContext& context, const HttpRequest& request) {
  MUSTER_RETURN_IF_ERROR(CheckKey(request, context.key));
  MUSTER_ASSIGN_OR_RETURN(const std::int64_t rank, NumberOf(request.query, "rank", 0));
  MUSTER_ASSIGN_OR_RETURN(const std::int64_t generation, NumberOf(request.query, "generation", 0));
  MUSTER_ASSIGN_OR_RETURN(const std::int64_t offset,
                          NumberOf(request.query, "offset", -kTailBytes));
  if (rank < 0 || rank > INT32_MAX) return InvalidArgument("rank is out of range");
  return LogQuestion{static_cast<int>(rank), generation, offset};
}

void AnswerLog(const PageContext& context, const LogQuestion& question, const JobView& view,
               const HttpResponder& reply) {
  const Result<LogLocation> location =
      context.controller.LocateLog(view, question.rank, question.generation);
  if (!location.ok()) return reply(Refusal(location.status()));
  context.read_log(
      *location, question.rank, question.offset,
      [reply, from_tail = question.offset < 0](Result<LogBytes> bytes) {
        if (!bytes.ok()) return reply(Refusal(bytes.status()));
        reply({.content_type = "application/json", .body = LogText(*std::move(bytes), from_tail)});
      });
}

void FindLog(const PageContext& context, const HttpRequest& request, const HttpResponder& reply) {
  const Result<LogQuestion> question = QuestionOf(context, request);
  if (!question.ok()) return reply(Refusal(question.status()));
  context.find_job(QueryValue(request.query, "job").value_or(""), ViewerOf(context, request).sees,
                   [context, reply, question = *question](const Result<JobView>& view) {
                     if (!view.ok()) return reply(Refusal(view.status()));
                     AnswerLog(context, question, *view, reply);
                   });
}

}  // namespace

void AddPageRoutes(HttpServer& server, const PageContext& context) {
  for (const PageAsset& asset : PageAssets()) {
    if (asset.name.ends_with(".html")) continue;
    server.Handle("/assets/" + std::string(asset.name),
                  [name = asset.name](const std::string&) { return AssetResponse(name); });
  }
  server.Handle("/", [](const std::string&) { return AssetResponse("index.html"); });
  server.Handle("/jobs/", [](const std::string&) { return AssetResponse("job.html"); });
  server.HandleStream(
      "/api/v1/events",
      [context](const HttpRequest& request, const std::shared_ptr<HttpStream>& stream,
                const HttpResponder& reply) { OpenStream(context, request, stream, reply); });
  server.HandleLater("/api/v1/log",
                     [context](const HttpRequest& request, const HttpResponder& reply) {
                       FindLog(context, request, reply);
                     });
}

}  // namespace muster
