#include "common/security/credentials.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/wall_time.h"

namespace muster {
namespace {

// Each try is spoilt only by a replacement that happens just then.
constexpr int kTries = 100;
// More than three certificates and a key.
constexpr std::size_t kProbeBytes = 16 << 10;

struct Paths {
  explicit Paths(const std::string& dir)
      : replacement(dir + "/replacement.json"),
        ca(dir + "/ca.pem"),
        cert(dir + "/cert.pem"),
        key(dir + "/key.pem") {}
  const std::string replacement;
  const std::string ca;
  const std::string cert;
  const std::string key;
};

Result<CredentialFiles> ParseReplacement(const std::string& path, const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto is_string = [&](const char* key) {
    return json.contains(key) && json[key].is_string();
  };
  if (!json.is_object() || !is_string("ca") || !is_string("cert") || !is_string("key"))
    return DataLoss(path + " is not {\"ca\", \"cert\", \"key\"}; remove it");
  return CredentialFiles{json["ca"], json["cert"], json["key"]};
}

Result<CredentialFiles> ReadThree(const Paths& paths) {
  CredentialFiles files;
  MUSTER_ASSIGN_OR_RETURN(files.ca_pem, ReadPrivateFile(paths.ca, Privacy::kTrusted));
  MUSTER_ASSIGN_OR_RETURN(files.cert_pem, ReadPrivateFile(paths.cert, Privacy::kTrusted));
  MUSTER_ASSIGN_OR_RETURN(files.key_pem, ReadPrivateFile(paths.key, Privacy::kSecret));
  return files;
}

Result<CredentialFiles> ReadFiles(const Paths& paths) {
  const auto replacement = ReadPrivateFile(paths.replacement, Privacy::kSecret);
  if (replacement.ok()) return ParseReplacement(paths.replacement, *replacement);
  if (replacement.status().code() != StatusCode::kNotFound) return replacement.status();
  return ReadThree(paths);
}

// When the file came to its place: files that are copied may keep the time they were written at.
std::int64_t ChangedNs(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return 0;
  return info.st_ctim.tv_sec * std::int64_t{1'000'000'000} + info.st_ctim.tv_nsec;
}

// Whether certificate and key came after the replacement: by its writer, or by one that did
// not know of it.
bool AreNewerThanReplacement(const Paths& paths) {
  const std::int64_t replacement = ChangedNs(paths.replacement);
  if (ChangedNs(paths.cert) <= replacement || ChangedNs(paths.key) <= replacement) return false;
  const auto files = ReadThree(paths);
  return files.ok() && CheckBelongTogether(files->ca_pem, files->cert_pem, files->key_pem).ok();
}

Status RemoveReplacement(const std::string& dir) {
  const std::string path = Paths(dir).replacement;
  if (::unlink(path.c_str()) != 0) return ErrnoStatus(errno, "remove " + path);
  return SyncDirectory(dir);
}

// In a directory that is locked.
Status WriteFiles(const std::string& dir, const CredentialFiles& files) {
  const Paths paths(dir);
  const nlohmann::json whole = {
      {"ca", files.ca_pem}, {"cert", files.cert_pem}, {"key", files.key_pem}};
  MUSTER_RETURN_IF_ERROR(
      WritePrivateFile(paths.replacement, whole.dump() + "\n", Privacy::kSecret));
  MUSTER_RETURN_IF_ERROR(WritePrivateFile(paths.ca, files.ca_pem, Privacy::kTrusted));
  MUSTER_RETURN_IF_ERROR(WritePrivateFile(paths.cert, files.cert_pem, Privacy::kTrusted));
  MUSTER_RETURN_IF_ERROR(WritePrivateFile(paths.key, files.key_pem, Privacy::kSecret));
  return RemoveReplacement(dir);
}

Result<Credentials> TryToLoad(const std::string& dir) {
  const auto files = ReadFiles(Paths(dir));
  if (files.status().code() == StatusCode::kNotFound)
    return NotFound("no credentials in " + dir + ": " + files.status().message() +
                    "; a cluster's are made by muster init and muster certs issue, a node's with "
                    "a join token (muster certs join-token)");
  if (!files.ok()) return files.status();
  const Status together = CheckBelongTogether(files->ca_pem, files->cert_pem, files->key_pem);
  if (!together.ok())
    return FailedPrecondition("credentials in " + dir + ": " + together.message() +
                              "; replace ca.pem, cert.pem and key.pem by those issued together");
  const auto info = ReadCertificate(files->cert_pem);
  if (!info.ok()) return info.status().WithContext(dir + "/cert.pem");
  return Credentials{files->ca_pem, files->cert_pem, files->key_pem,    info->identity,
                     info->serial,  info->issued_ms, info->not_after_ms};
}

}  // namespace

Result<Credentials> LoadCredentials(const std::string& dir) {
  for (int tries = 1;; ++tries) {
    const CredentialsStamp before = StampOfCredentials(dir);
    auto credentials = TryToLoad(dir);
    if (credentials.ok() || tries == kTries || StampOfCredentials(dir) == before)
      return credentials;
  }
}

Status WriteCredentials(const std::string& dir, const CredentialFiles& files) {
  MUSTER_RETURN_IF_ERROR(CheckBelongTogether(files.ca_pem, files.cert_pem, files.key_pem));
  MUSTER_RETURN_IF_ERROR(MakePrivateDirectory(dir));
  MUSTER_ASSIGN_OR_RETURN(const UniqueFd lock, LockDirectory(dir));
  return WriteFiles(dir, files);
}

Result<std::string> KeepServingFile(const std::string& dir, const Credentials& credentials) {
  const std::string path = dir + "/serving.pem";
  const std::string content = credentials.key_pem + credentials.cert_pem;
  const Result<std::string> there = ReadPrivateFile(path, Privacy::kSecret);
  if (!there.ok() || *there != content)
    MUSTER_RETURN_IF_ERROR(WritePrivateFile(path, content, Privacy::kSecret));
  return path;
}

Status MendCredentials(const std::string& dir) {
  const Paths paths(dir);
  if (StampOf(paths.replacement) == FileStamp()) return OkStatus();
  MUSTER_ASSIGN_OR_RETURN(const UniqueFd lock, LockDirectory(dir));
  if (AreNewerThanReplacement(paths)) return RemoveReplacement(dir);
  MUSTER_ASSIGN_OR_RETURN(const CredentialFiles files, ReadFiles(paths));
  MUSTER_RETURN_IF_ERROR(CheckBelongTogether(files.ca_pem, files.cert_pem, files.key_pem));
  return WriteFiles(dir, files);
}

Status CheckCanWriteCredentials(const std::string& dir) {
  MUSTER_RETURN_IF_ERROR(MakePrivateDirectory(dir));
  MUSTER_ASSIGN_OR_RETURN(const UniqueFd lock, LockDirectory(dir));
  const std::string path = dir + "/.probe";
  const Status written = WritePrivateFile(path, std::string(kProbeBytes, '\n'), Privacy::kSecret);
  ::unlink(path.c_str());
  return written;
}

Status CheckNotExpired(const Credentials& credentials, std::int64_t now_ms) {
  if (now_ms < credentials.not_after_ms) return OkStatus();
  const bool node = credentials.identity.role == Role::kNode;
  return FailedPrecondition(
      "the certificate of " + IdentityUri(credentials.identity) + " expired at " +
      UtcTime(credentials.not_after_ms) + "; make a new one: " +
      (node ? "muster certs join-token --node " + credentials.identity.name +
                  " on the coordinator's machine, and join with it"
            : "muster certs issue --role " + std::string(RoleWord(credentials.identity.role)) +
                  " --name " + credentials.identity.name +
                  " --out DIRECTORY, where the old one lies, beside the cluster's authority"));
}

std::int64_t RenewalDueMs(const Credentials& credentials) {
  return credentials.issued_ms + (credentials.not_after_ms - credentials.issued_ms) / 3 * 2;
}

CredentialsStamp StampOfCredentials(const std::string& dir) {
  const Paths paths(dir);
  return {StampOf(paths.replacement), StampOf(paths.ca), StampOf(paths.cert), StampOf(paths.key)};
}

}  // namespace muster
