// CacheKey: what names an entry of the token cache.
//
// Two entries have one key only if they hold the same rows: the key is a hash of the bytes of the
// files of rows in their order, of the tokenizer's and the chat template's files, of every option
// that ids depend on, and of Muster's version. Where files lie and when they were written does not
// count, so that copies, moved folders and other mount points find their entry.
//
// Pure but for reading files; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "trainer/data/content_hashes.h"
#include "trainer/data/row_encoder.h"

namespace muster {

// `rows` are the files of rows in their order, hashed. Reads the others, which are small.
Result<std::uint64_t> CacheKey(const std::vector<FileContent>& rows, const TextOptions& options);

// "2c3d....tokens": by the key alone.
std::string CacheEntryName(std::uint64_t key);

// Hashes the absolute paths of the rows. Not for finding an entry, but for finding which ones are
// of the same files, so that no more than some of them are kept.
std::uint64_t HashOfPaths(const std::vector<std::string>& paths);

}  // namespace muster
