#include "trainer/hub/fetch.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "common/base/files.h"
#include "common/base/json.h"
#include "trainer/hub/blob_download.h"
#include "trainer/hub/hub_files.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxAnswerBytes = 64 << 20;

struct ModelListing {
  std::string commit;
  std::vector<std::string> files;
  std::map<std::string, std::int64_t> sizes;  // where the Hub says them
};

Result<ModelListing> ParseListing(const std::string& text, const std::string& what) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("sha") || !json["sha"].is_string() ||
      !json.contains("siblings") || !json["siblings"].is_array()) {
    return DataLoss(what + ": the Hub's answer is no list of files; is the endpoint right?");
  }
  ModelListing listing{.commit = json["sha"].get<std::string>()};
  if (!IsCommit(listing.commit)) {
    return DataLoss(what + ": the Hub names no commit but " + json["sha"].dump());
  }
  for (const auto& file : json["siblings"]) {
    if (!file.is_object() || !file.contains("rfilename") || !file["rfilename"].is_string())
      continue;
    const auto name = file["rfilename"].get<std::string>();
    if (!IsSafeFileName(name)) {
      return DataLoss(
          what + ": the Hub lists a file that leads out of the model: " + file["rfilename"].dump());
    }
    listing.files.push_back(name);
    if (file.contains("size") && file["size"].is_number_unsigned()) {
      listing.sizes[name] = file["size"].get<std::int64_t>();
    }
  }
  return listing;
}

// Links a snapshot's file to its blob, by a path that stays right when the cache is moved.
Status LinkBlob(const std::string& link, const std::string& file, const std::string& etag) {
  std::string target = "../../";
  for (const char c : file) target += c == '/' ? "../" : "";
  target += "blobs/" + etag;
  MUSTER_RETURN_IF_ERROR(MakeDirectories(fs::path(link).parent_path().string()));
  const std::string temporary = link + ".tmp." + std::to_string(::getpid());
  ::unlink(temporary.c_str());
  if (::symlink(target.c_str(), temporary.c_str()) != 0) return ErrnoStatus(errno, "link " + link);
  if (::rename(temporary.c_str(), link.c_str()) != 0) return ErrnoStatus(errno, "rename " + link);
  return OkStatus();
}

class ModelFetch {
 public:
  ModelFetch(const FetchOptions& options, const FetchHooks& hooks,
             const std::function<std::unique_ptr<HttpClient>()>& make_client)
      : options_(options),
        hooks_(hooks),
        make_client_(make_client),
        repo_dir_(HubRepoDir(options.cache, options.id.repo)),
        lock_dir_(options.cache + "/.locks/" + fs::path(repo_dir_).filename().string()),
        page_(options.endpoint + "/" + options.id.repo) {}

  Result<std::string> Run() {
    MUSTER_RETURN_IF_ERROR(List());
    const std::vector<std::string> wanted = WantedFiles(listing_.files, options_.include);
    if (wanted.empty()) {
      return NotFound(options_.id.repo + ": none of its " + std::to_string(listing_.files.size()) +
                      " files is " +
                      (options_.include.empty() ? "one of a model" : "named by --include"));
    }
    if (options_.include.empty() && !HasSafetensors(wanted)) {
      return FailedPrecondition(
          options_.id.repo +
          ": it has no safetensors, and other weights (pickled, say) are not loaded; save the "
          "model with safe_serialization, or name the files that are wanted with --include");
    }
    for (const std::string& dir :
         {repo_dir_ + "/blobs", repo_dir_ + "/refs", lock_dir_, Snapshot()}) {
      MUSTER_RETURN_IF_ERROR(MakeDirectories(dir));
    }
    std::int64_t bytes = 0;
    for (const std::string& name : wanted) {
      const auto size = listing_.sizes.find(name);
      if (size != listing_.sizes.end()) bytes += size->second;
    }
    hooks_.on_plan(wanted.size(), bytes);
    MUSTER_RETURN_IF_ERROR(FetchAll(wanted));
    if (IsWhole()) {
      MUSTER_RETURN_IF_ERROR(WriteRef());
    } else {
      Note(Named() + ": " + Snapshot() +
           " is a part of the model, so that its name does not stand for it; fetch it without "
           "--include for that");
    }
    return Snapshot();
  }

 private:
  std::string Snapshot() const { return repo_dir_ + "/snapshots/" + listing_.commit; }

  Status List() {
    const std::string url = options_.endpoint + "/api/models/" + options_.id.repo + "/revision/" +
                            EncodedPath(options_.id.revision, false) + "?blobs=true";
    const std::unique_ptr<HttpClient> client = make_client_();
    std::string text;
    const HttpSink sink = [&](const HttpClientResponse&, std::string_view bytes) -> Status {
      if (text.size() + bytes.size() > kMaxAnswerBytes)
        return DataLoss(url + ": too long an answer");
      text += bytes;
      return OkStatus();
    };
    const auto anew = [&] {
      text.clear();
      return sink;
    };
    const Result<HttpClientResponse> answer =
        SendWithRetries(*client, {.url = url, .token = options_.token}, anew, Named(), page_,
                        [this](const std::string& note) { Note(note); });
    MUSTER_RETURN_IF_ERROR(answer.status());
    MUSTER_ASSIGN_OR_RETURN(listing_, ParseListing(text, Named()));
    return OkStatus();
  }

  std::string Named() const { return options_.id.repo + "@" + options_.id.revision; }

  Status FetchAll(const std::vector<std::string>& files) {
    std::atomic<std::size_t> next{0};
    const auto work = [&] {
      const std::unique_ptr<HttpClient> client = make_client_();
      for (std::size_t i = next++; i < files.size() && !failed_; i = next++) {
        const Status status = FetchFile(*client, files[i]);
        if (!status.ok()) Fail(status);
      }
    };
    const auto count = std::min(files.size(), static_cast<std::size_t>(options_.parallel));
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < count; ++i) threads.emplace_back(work);
    for (std::thread& thread : threads) thread.join();
    return failure_;
  }

  Status FetchFile(HttpClient& client, const std::string& file) {
    const std::string link = Snapshot() + "/" + file;
    std::error_code error;
    if (fs::exists(link, error)) {
      const auto size = listing_.sizes.find(file);
      Bytes(size == listing_.sizes.end() ? 0 : size->second);
    } else {
      MUSTER_ASSIGN_OR_RETURN(const BlobSource source, Describe(client, file));
      const BlobPlace place{.blob = repo_dir_ + "/blobs/" + source.etag,
                            .lock = lock_dir_ + "/" + source.etag + ".lock"};
      MUSTER_RETURN_IF_ERROR(
          DownloadBlob(client, source, place,
                       {.on_bytes = [this](std::int64_t bytes) { Bytes(bytes); },
                        .on_note = [this](const std::string& note) { Note(note); }}));
      MUSTER_RETURN_IF_ERROR(LinkBlob(link, file, source.etag));
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    hooks_.on_file(file);
    return OkStatus();
  }

  // What the Hub says of a file without sending it.
  Result<BlobSource> Describe(HttpClient& client, const std::string& file) {
    BlobSource source{.url = options_.endpoint + "/" + options_.id.repo + "/resolve/" +
                             listing_.commit + "/" + EncodedPath(file, true),
                      .what = options_.id.repo + ": " + file,
                      .page = page_,
                      .token = options_.token};
    const auto ignore = []() -> HttpSink {
      return [](const HttpClientResponse&, std::string_view) { return OkStatus(); };
    };
    MUSTER_ASSIGN_OR_RETURN(
        const HttpClientResponse head,
        SendWithRetries(client, {.url = source.url, .head = true, .token = options_.token}, ignore,
                        source.what, page_, [this](const std::string& note) { Note(note); }));
    const std::string linked = head.Header("x-linked-etag");
    source.etag = NormalizedEtag(linked.empty() ? head.Header("etag") : linked);
    if (source.etag.empty()) {
      return DataLoss(source.what + ": the Hub gave no ETag; is the endpoint right?");
    }
    const std::string linked_size = head.Header("x-linked-size");
    const std::string size =
        linked_size.empty() && head.redirect.empty() ? head.Header("content-length") : linked_size;
    if (!size.empty() && size.size() < 19 &&
        std::all_of(size.begin(), size.end(), [](unsigned char c) { return std::isdigit(c); })) {
      source.size = std::stoll(size);
    } else if (const auto listed = listing_.sizes.find(file); listed != listing_.sizes.end()) {
      // An answer that leads elsewhere, or came by way of a proxy, may not give it.
      source.size = listed->second;
    }
    return source;
  }

  // Whether a job could be started from the snapshot, whatever was asked for this time.
  bool IsWhole() const {
    const std::vector<std::string> needed = WantedFiles(listing_.files, {});
    return HasSafetensors(needed) &&
           std::all_of(needed.begin(), needed.end(), [this](const std::string& file) {
             std::error_code error;
             return fs::exists(Snapshot() + "/" + file, error);
           });
  }

  Status WriteRef() {
    if (options_.id.revision == listing_.commit) return OkStatus();
    const std::string ref = repo_dir_ + "/refs/" + options_.id.revision;
    MUSTER_RETURN_IF_ERROR(MakeDirectories(fs::path(ref).parent_path().string()));
    return WriteFileAtomically(ref, listing_.commit);
  }

  void Fail(const Status& status) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!failed_.exchange(true)) failure_ = status;
  }
  void Bytes(std::int64_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    hooks_.on_bytes(bytes);
  }
  void Note(const std::string& note) {
    const std::lock_guard<std::mutex> lock(mutex_);
    hooks_.on_note(note);
  }

  const FetchOptions& options_;
  const FetchHooks& hooks_;
  const std::function<std::unique_ptr<HttpClient>()>& make_client_;
  const std::string repo_dir_;
  const std::string lock_dir_;
  const std::string page_;
  ModelListing listing_;
  std::mutex mutex_;  // of the hooks and of failure_
  std::atomic<bool> failed_{false};
  Status failure_;
};

}  // namespace

Result<std::string> FetchModel(const FetchOptions& options, const FetchHooks& hooks,
                               const std::function<std::unique_ptr<HttpClient>()>& make_client) {
  return ModelFetch(options, hooks, make_client).Run();
}

std::string HubEndpoint(const GetEnv& env) {
  const char* const set = env("HF_ENDPOINT");
  std::string endpoint = set != nullptr && *set != '\0' ? set : kHubEndpoint;
  while (endpoint.ends_with('/')) endpoint.pop_back();
  return endpoint;
}

Result<std::string> HubToken(const std::string& token_file, const GetEnv& env) {
  const auto variable = [&](const char* name) {
    const char* const value = env(name);
    return value == nullptr ? std::string() : std::string(value);
  };
  std::string token;
  if (!token_file.empty()) {
    MUSTER_ASSIGN_OR_RETURN(token, ReadFile(token_file, 1 << 16));
  }
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    if (token.empty()) token = variable(name);
  }
  if (token.empty()) {
    std::string path = variable("HF_TOKEN_PATH");
    if (path.empty()) path = (fs::path(HubHome(env)) / "token").string();
    Result<std::string> stored = ReadFile(path, 1 << 16);
    if (stored.ok()) token = *std::move(stored);
  }
  const auto is_blank = [](unsigned char c) { return std::isspace(c) != 0; };
  token.erase(std::find_if_not(token.rbegin(), token.rend(), is_blank).base(), token.end());
  token.erase(token.begin(), std::find_if_not(token.begin(), token.end(), is_blank));
  if (std::any_of(token.begin(), token.end(),
                  [](unsigned char c) { return c <= ' ' || c > '~'; })) {
    return InvalidArgument("the Hub's token holds characters that no token has");
  }
  return token;
}

std::string EncodedPath(const std::string& text, bool keep_slashes) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string encoded;
  for (const unsigned char c : text) {
    if (std::isalnum(c) != 0 ||
        std::string_view("-._~").find(static_cast<char>(c)) != std::string_view::npos ||
        (c == '/' && keep_slashes)) {
      encoded += static_cast<char>(c);
    } else {
      encoded += {'%', kDigits[c >> 4], kDigits[c & 15]};
    }
  }
  return encoded;
}

}  // namespace muster
