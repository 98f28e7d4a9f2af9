#include "trainer/data/cache_key.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <memory>
#include <string_view>

#include <xxhash.h>

#include "common/base/unique_fd.h"
#include "common/base/version.h"
#include "trainer/data/cache_folder.h"

namespace muster {
namespace {

// Raised when the same files and options make other ids, or the entry's format changes.
constexpr std::uint64_t kEncodingVersion = 1;
constexpr std::size_t kReadBytes = 4 << 20;

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

// Of some MB at most.
Status AddFile(const std::string& path, KeyHash* hash) {
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
  }
  hash->Number(size);
  return OkStatus();
}

}  // namespace

Result<std::uint64_t> CacheKey(const std::vector<FileContent>& rows, const TextOptions& options) {
  KeyHash hash;
  hash.Number(kEncodingVersion);
  hash.Text(kVersion);
  hash.Number(static_cast<std::uint64_t>(options.max_seq_len));
  hash.Number(static_cast<std::uint64_t>(options.vocab_size));
  hash.Number(options.eos_token_id ? static_cast<std::uint64_t>(*options.eos_token_id) + 1 : 0);
  hash.Number(options.split_text ? 1 : 0);
  hash.Number(options.train_on_all ? 1 : 0);
  hash.Text(options.text_field);
  hash.Text(options.chat_date);
  const bool is_file = options.chat_template.ends_with(".jinja");
  hash.Text(is_file ? ".jinja" : options.chat_template);
  if (is_file) MUSTER_RETURN_IF_ERROR(AddFile(options.chat_template, &hash));
  for (const char* name : kModelFiles) {
    std::error_code error;
    const std::string path = options.model_dir + "/" + name;
    hash.Text(name);
    if (std::filesystem::exists(path, error)) MUSTER_RETURN_IF_ERROR(AddFile(path, &hash));
  }
  if (!options.tokenizer_json.empty()) hash.Text(options.tokenizer_json);
  for (const FileContent& file : rows) {
    // The ending says how the bytes are read.
    const bool lines = file.path.ends_with(".jsonl") || file.path.ends_with(".jsonl.gz");
    hash.Text(lines ? "lines" : "array");
    hash.Number(static_cast<std::uint64_t>(file.identity.bytes));
    hash.Number(file.hash);
  }
  return hash.value();
}

std::string CacheEntryName(std::uint64_t key) { return ToHex(key) + ".tokens"; }

std::uint64_t HashOfPaths(const std::vector<std::string>& paths) {
  KeyHash hash;
  for (const std::string& path : paths) {
    std::error_code error;
    hash.Text(std::filesystem::absolute(path, error).lexically_normal().string());
  }
  return hash.value();
}

}  // namespace muster
