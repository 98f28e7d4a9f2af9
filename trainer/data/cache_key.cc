#include "trainer/data/cache_key.h"

#include <fcntl.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string_view>

#include <xxhash.h>

#include "common/base/unique_fd.h"
#include "common/base/version.h"

namespace muster {
namespace {

// Raised when the same files and options make other ids, or the entry's format changes.
constexpr std::uint64_t kEncodingVersion = 1;
constexpr std::size_t kReadBytes = 4 << 20;
constexpr std::size_t kNameBytes = 40;  // of the first file's name, for people

// The files of a model directory that ids may depend on.
constexpr const char* kModelFiles[] = {
    "tokenizer.json",      "tokenizer.model",   "tokenizer_config.json", "special_tokens_map.json",
    "chat_template.jinja", "added_tokens.json", "generation_config.json"};

class KeyHash {
 public:
  KeyHash() : state_(XXH3_createState(), &XXH3_freeState) { XXH3_64bits_reset(state_.get()); }

  void Bytes(std::string_view bytes) {
    XXH3_64bits_update(state_.get(), bytes.data(), bytes.size());
  }
  void Number(std::uint64_t number) {
    Bytes({reinterpret_cast<const char*>(&number), sizeof number});
  }
  // With its length, so that no two lists of texts run into one.
  void Text(std::string_view text) {
    Number(text.size());
    Bytes(text);
  }
  std::uint64_t value() const { return XXH3_64bits_digest(state_.get()); }

 private:
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
};

Status AddFile(const std::string& path, const std::function<void()>& on_read, KeyHash* hash) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return ErrnoStatus(errno, "open " + path);
  std::vector<char> buffer(kReadBytes);
  std::uint64_t size = 0;
  for (;;) {
    const ssize_t n = ::read(fd.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "read " + path);
    if (n == 0) break;
    hash->Bytes({buffer.data(), static_cast<std::size_t>(n)});
    size += static_cast<std::uint64_t>(n);
    if (on_read) on_read();
  }
  hash->Number(size);
  return OkStatus();
}

std::string Hex(std::uint64_t number) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(number));
  return text;
}

}  // namespace

Result<std::uint64_t> CacheKey(const std::vector<std::string>& paths, const std::string& model_dir,
                               const TextOptions& options, const std::function<void()>& on_read) {
  KeyHash hash;
  hash.Number(kEncodingVersion);
  hash.Text(kVersion);
  hash.Number(static_cast<std::uint64_t>(options.max_seq_len));
  hash.Number(static_cast<std::uint64_t>(options.vocab_size));
  hash.Number(options.eos_token_id ? static_cast<std::uint64_t>(*options.eos_token_id) + 1 : 0);
  hash.Number(options.split_text ? 1 : 0);
  hash.Text(options.text_field);
  const bool is_file = options.chat_template.ends_with(".jinja");
  hash.Text(is_file ? ".jinja" : options.chat_template);
  if (is_file) MUSTER_RETURN_IF_ERROR(AddFile(options.chat_template, on_read, &hash));
  for (const char* name : kModelFiles) {
    std::error_code error;
    const std::string path = model_dir + "/" + name;
    hash.Text(name);
    if (std::filesystem::exists(path, error)) MUSTER_RETURN_IF_ERROR(AddFile(path, on_read, &hash));
  }
  if (!options.tokenizer_json.empty()) hash.Text(options.tokenizer_json);
  for (const std::string& path : paths) {
    // The ending says how the bytes are read.
    hash.Text(path.ends_with(".jsonl") || path.ends_with(".jsonl.gz") ? "lines" : "array");
    MUSTER_RETURN_IF_ERROR(AddFile(path, on_read, &hash));
  }
  return hash.value();
}

std::string CacheEntryPrefix(const std::vector<std::string>& paths) {
  KeyHash hash;
  for (const std::string& path : paths) {
    std::error_code error;
    hash.Text(std::filesystem::absolute(path, error).lexically_normal().string());
  }
  std::string name = std::filesystem::path(paths.front()).stem().string().substr(0, kNameBytes);
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name + "-" + Hex(hash.value()) + "-";
}

std::string CacheEntryName(const std::vector<std::string>& paths, std::uint64_t key) {
  return CacheEntryPrefix(paths) + Hex(key) + ".tokens";
}

}  // namespace muster
