#include "coordinator/queues/share_tree.h"

#include <algorithm>
#include <cstddef>

namespace muster {
namespace {

constexpr char kSeparator = '/';

template <typename Places>
int PlaceIn(const Places& places, std::string_view name) {
  const auto place = places.find(name);
  return place == places.end() ? -1 : place->second;
}

}  // namespace

std::string ShareName(std::string_view queue, std::string_view user) {
  return std::string(queue) + kSeparator + std::string(user);
}

bool IsOfUser(std::string_view share) { return share.find(kSeparator) != std::string_view::npos; }

std::string_view QueueOfShare(std::string_view share) {
  return share.substr(0, share.find(kSeparator));
}

std::string_view UserOfShare(std::string_view share) {
  return IsOfUser(share) ? share.substr(share.find(kSeparator) + 1) : std::string_view();
}

ShareTree::ShareTree(const QueueTree& queues, bool by_user)
    : tree_(queues), by_user_(by_user), users_(queues.queues.size()) {
  for (std::size_t i = 0; i < tree_.queues.size(); ++i) {
    queues_.emplace(tree_.queues[i].name, static_cast<int>(i));
    tree_.queues[i].leaf = tree_.queues[i].leaf && !by_user;
  }
}

int ShareTree::Find(std::string_view queue, std::string_view owner) const {
  const int place = PlaceIn(queues_, queue);
  if (!by_user_ || place < 0) return place;
  return PlaceIn(users_[static_cast<std::size_t>(place)], owner);
}

int ShareTree::FindOrAny(std::string_view queue, std::string_view owner) const {
  const int place = Find(queue, owner);
  return place < 0 ? Find(queue, kAnyUser) : place;
}

int ShareTree::PlaceOfUsage(std::string_view share) const {
  const int queue = PlaceIn(queues_, QueueOfShare(share));
  if (queue < 0 || !IsOfUser(share)) return queue;
  const int place = PlaceIn(users_[static_cast<std::size_t>(queue)], UserOfShare(share));
  return place < 0 ? queue : place;
}

int ShareTree::Add(std::string_view queue, std::string_view owner) {
  const int known = Find(queue, owner);
  const int place = PlaceIn(queues_, queue);
  return known >= 0 || place < 0 ? known : AddLeaf(place, owner);
}

void ShareTree::AddAnyUser() {
  if (!by_user_) return;
  std::vector<bool> takes_jobs(users_.size(), true);
  for (std::size_t i = 0; i < users_.size(); ++i)
    if (const int parent = tree_.queues[i].parent; parent >= 0)
      takes_jobs[static_cast<std::size_t>(parent)] = false;
  for (std::size_t i = 0; i < users_.size(); ++i)
    if (takes_jobs[i]) AddLeaf(static_cast<int>(i), kAnyUser);
}

int ShareTree::AddLeaf(int queue, std::string_view user) {
  const auto at = static_cast<std::size_t>(queue);
  const auto place = static_cast<int>(tree_.queues.size());
  QueueSpec leaf{.name = ShareName(tree_.queues[at].name, user), .parent = queue};
  leaf.ceiling = tree_.queues[at].per_user.ceiling;
  tree_.queues.push_back(std::move(leaf));
  users_[at].emplace(std::string(user), place);
  return place;
}

}  // namespace muster
