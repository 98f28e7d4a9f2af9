#include "worker/process/container_entry.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "common/base/files.h"
#include "common/process/spawn.h"
#include "worker/process/container_root.h"

namespace muster {
namespace {

constexpr char kDefaultPath[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

void CompleteEnvironment(const ContainerRoot& root) {
  for (const std::string& entry : root.environment)
    if (const std::size_t equals = entry.find('='); equals != std::string::npos)
      ::setenv(entry.substr(0, equals).c_str(), entry.substr(equals + 1).c_str(), 0);
  ::setenv("PATH", kDefaultPath, 0);
  if (root.library_path.empty()) return;
  const char* const own = std::getenv("LD_LIBRARY_PATH");
  const std::string rest = own != nullptr && *own != '\0' ? ":" + std::string(own) : "";
  ::setenv("LD_LIBRARY_PATH", (root.library_path + rest).c_str(), 1);
}

// Where the program is, in the root.
Result<std::string> Enter(const std::string& file, const std::string& program) {
  MUSTER_ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
  auto root = DecodeContainerRoot(text);
  if (!root.ok()) return root.status().WithContext(file);
  MUSTER_RETURN_IF_ERROR(EnterContainer(*root));
  if (::chdir(root->working_directory.c_str()) != 0)
    return ErrnoStatus(errno, "enter directory " + root->working_directory + " in the container");
  CompleteEnvironment(*root);
  auto found = FindProgram(program, std::getenv("PATH"), root->working_directory);
  if (!found.ok()) return found.status().WithContext("command, in the container");
  return found;
}

}  // namespace

Status RunInContainer(const std::string& file, const std::vector<std::string>& argv) {
  MUSTER_ASSIGN_OR_RETURN(const std::string program, Enter(file, argv.at(0)));
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words[0] = const_cast<char*>(program.c_str());
  words.push_back(nullptr);
  ::execv(program.c_str(), words.data());
  return ErrnoStatus(errno, "execute " + program + " in the container");
}

Status CheckContainer(const std::string& file, const std::vector<std::string>& paths) {
  MUSTER_RETURN_IF_ERROR(Enter(file, paths.at(0)).status());
  for (const std::string& path : paths)
    if (&path != paths.data() && ::access(path.c_str(), R_OK) != 0)
      return NotFound("there is no readable " + path +
                      " in the container; add it to "
                      "container.mounts");
  return OkStatus();
}

}  // namespace muster
