#include "worker/process/secret_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "common/base/json.h"

namespace muster {
namespace {

constexpr std::size_t kMaxBytes = 8 << 20;

Result<UniqueFd> MemoryFile(const std::string& content) {
  UniqueFd fd(::memfd_create("muster-secrets", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return ErrnoStatus(errno, "memfd_create");
  for (std::size_t done = 0; done < content.size();) {
    const ssize_t n = ::write(fd.get(), content.data() + done, content.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return ErrnoStatus(errno, "write secrets");
    done += static_cast<std::size_t>(n);
  }
  constexpr int kSeals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (::fchmod(fd.get(), 0400) != 0 || ::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0 ||
      ::lseek(fd.get(), 0, SEEK_SET) != 0)
    return ErrnoStatus(errno, "seal secrets");
  return fd;
}

}  // namespace

// As arrays of bytes, since values need not be UTF-8.
Result<UniqueFd> MakeSecretFile(const RankSecrets& secrets) {
  nlohmann::json json = {{"variables", nlohmann::json::object()},
                         {"files", nlohmann::json::object()}};
  const auto add = [](nlohmann::json& to, const std::map<std::string, std::string>& values) {
    for (const auto& [name, value] : values)
      to[name] = std::vector<std::uint8_t>(value.begin(), value.end());
  };
  add(json["variables"], secrets.variables);
  add(json["files"], secrets.files);
  const std::vector<std::uint8_t> bytes = nlohmann::json::to_cbor(json);
  return MemoryFile(std::string(bytes.begin(), bytes.end()));
}

Result<RankSecrets> ReadSecretFile(int fd) {
  struct stat file {};
  if (::fstat(fd, &file) != 0) return ErrnoStatus(errno, "read secrets");
  if (file.st_size < 0 || static_cast<std::size_t>(file.st_size) > kMaxBytes)
    return DataLoss("the secrets are too large");
  std::string bytes(static_cast<std::size_t>(file.st_size), '\0');
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t n =
        ::pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return ErrnoStatus(errno, "read secrets");
    done += static_cast<std::size_t>(n);
  }
  RankSecrets secrets;
  try {
    const nlohmann::json json = nlohmann::json::from_cbor(bytes);
    const auto take = [](const nlohmann::json& from, std::map<std::string, std::string>* to) {
      for (const auto& [name, value] : from.items()) {
        const auto content = value.get<std::vector<std::uint8_t>>();
        (*to)[name] = std::string(content.begin(), content.end());
      }
    };
    take(json.at("variables"), &secrets.variables);
    take(json.at("files"), &secrets.files);
  } catch (const nlohmann::json::exception&) {
    return DataLoss("the secrets cannot be read");
  }
  return secrets;
}

Result<std::vector<UniqueFd>> AddSecrets(const RankSecrets& secrets, int first_target,
                                         SpawnOptions* options) {
  std::vector<UniqueFd> files;
  for (const auto& [name, value] : secrets.variables)
    options->environment.push_back(name + "=" + value);
  for (const auto& [name, content] : secrets.files) {
    MUSTER_ASSIGN_OR_RETURN(UniqueFd file, MemoryFile(content));
    options->environment.push_back(name + "=/proc/self/fd/" + std::to_string(first_target));
    options->inherited.push_back({file.get(), first_target++});
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace muster
