// Which files of a model on the Hub are fetched, and how their contents are checked.
//
// Pure but for ContentCheck::AddFile, which reads a file; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace muster {

// Those of a model's files that it is loaded from: configuration, tokenizer, templates and
// safetensors. With `include` the files that match one of its patterns (shell's * ? [], where *
// crosses slashes), whatever they are. In order.
std::vector<std::string> WantedFiles(const std::vector<std::string>& all,
                                     const std::vector<std::string>& include);

// Whether weights that can be loaded are among the files of a model: safetensors, in no folder.
bool HasSafetensors(const std::vector<std::string>& all);

// Whether a name from the Hub may become a path below a snapshot: relative, nothing in it leads
// out.
bool IsSafeFileName(std::string_view name);

// The ETag header's value without W/ and quotes; empty if it would be no file name.
std::string NormalizedEtag(std::string_view header);

// Compares contents with an ETag of the Hub: the SHA-256 of a large file (64 digits), or the SHA-1
// that git gives a file of that size (40 digits). Another kind of ETag cannot be checked and
// passes, and so does git's where the size is not known (-1), which it is taken over as well.
class ContentCheck {
 public:
  ContentCheck(std::string etag, std::int64_t size);
  ~ContentCheck();
  ContentCheck(ContentCheck&&) noexcept;
  ContentCheck& operator=(ContentCheck&&) noexcept;

  void Add(std::string_view bytes);
  // The first `count` bytes of a file.
  Status AddFile(const std::string& path, std::int64_t count);
  // Whether all of the bytes are those that the ETag names. Call once.
  bool Matches();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace muster
