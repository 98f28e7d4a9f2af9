// CacheKey: what names an entry of the token cache.
//
// Two entries have one key only if they hold the same rows: the key is a hash of the bytes of the
// files of rows in their order, of the tokenizer's and the chat template's files, of every option
// that ids depend on, and of Muster's version. Where files lie and when they were written does not
// count. The entry's file name adds a hash of the paths (CacheEntryPrefix), for the old entries of
// the same files to be found, so files at another place have an entry of their own.
//
// Pure but for reading files; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "trainer/data/row_encoder.h"

namespace muster {

// Reads all of `paths`; `on_read` is called in between, at least every few MiB. Empty: nobody asks.
Result<std::uint64_t> CacheKey(const std::vector<std::string>& paths, const std::string& model_dir,
                               const TextOptions& options, const std::function<void()>& on_read);

// "train-0a1b...-2c3d....tokens": the first file's name, the files by their absolute paths, the
// key. Entries of the same files share all but the last part, CacheEntryPrefix.
std::string CacheEntryPrefix(const std::vector<std::string>& paths);
std::string CacheEntryName(const std::vector<std::string>& paths, std::uint64_t key);

}  // namespace muster
