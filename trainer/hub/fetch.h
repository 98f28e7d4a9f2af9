// FetchModel: a model of the Hugging Face Hub into the cache that hub_id.h describes.
//
// The model's files come several at a time; the snapshot's links appear as they are complete, and
// refs/REVISION last, and only where the snapshot then holds all that a model is loaded from. What
// is there already is not fetched again. Source of the addresses and
// headers: huggingface_hub's file_download.py and hf_api.py (/api/models/ID/revision/R;
// /ID/resolve/ COMMIT/FILE with X-Repo-Commit, X-Linked-Etag, X-Linked-Size).
//
// Blocks until all is there or the first file has failed for good. The hooks are called from
// several threads, one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/http/http_client.h"
#include "trainer/hub/hub_id.h"

namespace muster {

struct FetchOptions {
  HubId id;
  std::string endpoint;              // https://host, without a slash at the end
  std::string token;                 // empty: none
  std::string cache;                 // directory, made where it is not there
  std::vector<std::string> include;  // patterns; empty: what a model is loaded from
  int parallel = 4;
};

struct FetchHooks {
  std::function<void(std::size_t files, std::int64_t bytes)> on_plan;  // bytes 0: not known
  std::function<void(std::int64_t bytes)> on_bytes;
  std::function<void(const std::string& file)> on_file;
  std::function<void(const std::string& note)> on_note;
};

// The snapshot's directory.
Result<std::string> FetchModel(
    const FetchOptions& options, const FetchHooks& hooks,
    const std::function<std::unique_ptr<HttpClient>()>& make_client = MakeHttpClient);

// HF_ENDPOINT, or the Hub's own address; without a slash at the end.
std::string HubEndpoint(const GetEnv& env);
// From `token_file` if it is not empty; else HF_TOKEN, HUGGING_FACE_HUB_TOKEN, the file
// HF_TOKEN_PATH, HF_HOME/token or ~/.cache/huggingface/token; empty where none of these is there.
Result<std::string> HubToken(const std::string& token_file, const GetEnv& env);

// Percent-encoded for a path; slashes stay if `keep_slashes`. Pure.
std::string EncodedPath(const std::string& text, bool keep_slashes);

}  // namespace muster
