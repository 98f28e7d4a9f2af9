#include "coordinator/page/page_routes.h"

#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "common/security/encoding.h"
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
  if (request.by_certificate || EqualInConstantTime(request.bearer, key)) return OkStatus();
  return PermissionDenied(
      request.bearer.empty() ? "this needs the page's key; 'muster page' prints the address with it"
                             : "the page's key is not valid: a coordinator makes a new one "
                               "when it starts; 'muster page' prints the address with it");
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

std::string PercentDecoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const int high = text[i] == '%' && i + 2 < text.size() ? HexDigit(text[i + 1]) : -1;
    const int low = high >= 0 ? HexDigit(text[i + 2]) : -1;
    out += low >= 0 ? static_cast<char>(high * 16 + low) : text[i];
    if (low >= 0) i += 2;
  }
  return out;
}

// The value of a key in "a=b&c=d"; empty: it is not there.
std::optional<std::string> ValueOf(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    if (pair.substr(0, pair.find('=')) != name) continue;
    return PercentDecoded(pair.substr(std::min(pair.size(), name.size() + 1)));
  }
  return std::nullopt;
}

Result<std::int64_t> NumberOf(std::string_view query, std::string_view name,
                              std::int64_t otherwise) {
  const std::optional<std::string> text = ValueOf(query, name);
  if (!text) return otherwise;
  std::int64_t number = 0;
  const auto end = std::from_chars(text->data(), text->data() + text->size(), number);
  if (end.ec == std::errc() && end.ptr == text->data() + text->size()) return number;
  return InvalidArgument(std::string(name) + "=" + *text + " is not a whole number");
}

HttpResponse OpenStream(const PageContext& context, const HttpRequest& request,
                        std::shared_ptr<HttpStream> stream) {
  if (const Status status = CheckKey(request, context.key); !status.ok()) return Refusal(status);
  JobId job;
  if (const std::optional<std::string> name = ValueOf(request.query, "job")) {
    job = context.controller.FindArchived(*name);
    if (job.empty()) {
      const Result<JobView> view = context.controller.FindJob(*name);
      if (!view.ok()) return Refusal(view.status());
      job = view->record->id;
    }
  }
  context.feeds.Add(job, request, std::move(stream));
  return {};
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
  context.find_job(ValueOf(request.query, "job").value_or(""),
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
  server.HandleStream("/api/v1/events",
                      [context](const HttpRequest& request, std::shared_ptr<HttpStream> stream) {
                        return OpenStream(context, request, std::move(stream));
                      });
  server.HandleLater("/api/v1/log",
                     [context](const HttpRequest& request, const HttpResponder& reply) {
                       FindLog(context, request, reply);
                     });
}

}  // namespace muster
