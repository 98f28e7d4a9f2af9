// Where a machine's cache keeps a model of the Hugging Face Hub, whose name is
// common/base/hub_id.h.
//
// The cache is that of the Python package huggingface_hub, so that both see what the other fetched:
//   CACHE/models--ORG--NAME/refs/REVISION            the commit that a branch or tag had last
//                          /snapshots/COMMIT/FILE    a link to ../../blobs/ETAG
//                          /blobs/ETAG               contents; ETAG.incomplete while it comes
//   CACHE/.locks/models--ORG--NAME/ETAG.lock         held (flock) by who fetches the blob
// Source: huggingface_hub's guide "Understand caching" and its file_download.py.
//
// Plain values and functions; any thread. ResolveModel looks at the file system.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "common/base/hub_id.h"
#include "common/base/result.h"

namespace muster {

// A commit's whole name: 40 hexadecimal digits.
bool IsCommit(std::string_view revision);

// As std::getenv.
using GetEnv = std::function<const char*(const char*)>;

// HF_HOME, else XDG_CACHE_HOME/huggingface, else ~/.cache/huggingface.
std::string HubHome(const GetEnv& env);
// HF_HUB_CACHE, else the home's hub/.
std::string HubCacheDir(const GetEnv& env);
// CACHE/models--ORG--NAME
std::string HubRepoDir(const std::string& cache, const std::string& repo);

// The directory of a model that is given by path or by name: an existing directory counts first.
// kNotFound says how to fetch it.
Result<std::string> ResolveModel(const std::string& model, const GetEnv& env);
// With the process's environment.
Result<std::string> ResolveModel(const std::string& model);

}  // namespace muster
