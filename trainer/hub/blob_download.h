// DownloadBlob: one file's contents from the Hub into the cache.
//
// What came before an interruption, of this process or an earlier one, is kept in ETAG.incomplete
// and gone on from. Contents get their name only when their checksum is right and they are on the
// disk. Processes that want the same blob wait for the one that fetches it (flock on the lock file,
// as huggingface_hub does) and then find it there.
//
// Blocks; one thread. Errors: kUnavailable after several tries that got hardly further, and where
// another process has the lock and gets nothing for `lock_timeout`; kDataLoss for contents that
// are not those of the ETag, kResourceExhausted for a full disk, and what the Hub refuses
// (hub_errors.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/http/http_client.h"

namespace muster {

struct BlobSource {
  std::string url;
  std::string what;   // for messages: "org/name: config.json"
  std::string page;   // where a person asks for access
  std::string token;  // empty: none
  std::string etag;
  std::int64_t size = -1;  // -1: the Hub did not say
};

struct BlobPlace {
  std::string blob;  // the file to make
  std::string lock;
  // More than all of a fetch's tries can take. A lock whose host is gone stays on some network
  // disks.
  Duration lock_timeout = std::chrono::minutes(30);
};

// Whether the holder of the lock still gets on: its part of the file has grown within the timeout.
// Pure; one thread.
class GrowthWatch {
 public:
  GrowthWatch(Duration timeout, TimePoint now) : timeout_(timeout), grown_at_(now) {}
  bool HasStalled(std::int64_t bytes, TimePoint now);

 private:
  const Duration timeout_;
  TimePoint grown_at_;
  std::int64_t bytes_ = -1;
};

struct DownloadHooks {
  // Bytes that came; negative when some were thrown away. Also those found from earlier.
  std::function<void(std::int64_t bytes)> on_bytes;
  std::function<void(const std::string& note)> on_note;
};

Status DownloadBlob(HttpClient& client, const BlobSource& source, const BlobPlace& place,
                    const DownloadHooks& hooks);

// Sends until the Hub answers something that another try would not change. `new_sink` makes a sink
// for each try: one that broke off has left half a body in its own.
Result<HttpClientResponse> SendWithRetries(HttpClient& client, const HttpClientRequest& request,
                                           const std::function<HttpSink()>& new_sink,
                                           const std::string& what, const std::string& page,
                                           const std::function<void(const std::string&)>& on_note);

}  // namespace muster
