#include <tenfold/mapped_dict.hpp>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "dict/handle.hpp"
#include "dict/walk.hpp"
#include "os/thread/helper_thread.hpp"

namespace tenfold {
namespace {

template <class Key>
Batch value_at(DictHandle& handle, Key key) {
  const FoundRow found = handle.find(key);
  if (found.row >= 0) return gather(*found.state->values, std::span(&found.row, 1), {});
  throw base::key_not_found(found.state->keys.where).problem("no key ", shown_key(key));
}

template <class Key>
bool has_key(DictHandle& handle, Key key) {
  return handle.find(key).row >= 0;
}

Tensor found_of(std::span<const std::int64_t> rows) {
  Tensor found = Tensor::zeros(DType::bool_, {static_cast<std::int64_t>(rows.size())});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    found.mutable_raw_data()[i] = static_cast<std::byte>(rows[i] >= 0 ? 1 : 0);
  }
  return found;
}

}  // namespace

MappedDict::MappedDict(const Path& path, Mode mode)
    : handle_(std::make_shared<DictHandle>(path, mode)) {}

MappedDict::MappedDict(TensorDict tree) : handle_(std::make_shared<DictHandle>(std::move(tree))) {}

std::int64_t MappedDict::size() const { return handle_->newest()->num_keys(); }

DictKeyType MappedDict::key_type() const noexcept { return handle_->key_type(); }

DictValueForm MappedDict::value_form() const noexcept { return handle_->value_form(); }

const Schema& MappedDict::schema() const& noexcept { return handle_->value_schema(); }

bool MappedDict::contains(std::string_view key) const { return has_key(*handle_, key); }

bool MappedDict::contains(std::int64_t key) const { return has_key(*handle_, key); }

Batch MappedDict::at(std::string_view key) const { return value_at(*handle_, key); }

Batch MappedDict::at(std::int64_t key) const { return value_at(*handle_, key); }

DictValues MappedDict::get_many(const DictKeys& keys) const {
  os::start_helper();
  FoundValues found = handle_->get_many(keys);
  return {std::move(found.values), found_of(found.found.rows)};
}

std::vector<std::int64_t> MappedDict::rows(const DictKeys& keys) const {
  os::start_helper();
  return handle_->find_many(keys).rows;
}

Batch MappedDict::at_rows(std::span<const std::int64_t> rows) const {
  const auto state = handle_->state();
  for (const std::int64_t row : rows) {
    if (row >= -1 && row < state->keys.num_rows) continue;
    throw base::invalid_argument(state->keys.where)
        .part("row")
        .expected("an index in [-1, ", state->keys.num_rows, ")")
        .found(row);
  }
  return gather_found(*state->values, rows);
}

Dataset MappedDict::dataset() const { return handle_->dataset(); }

std::vector<std::int64_t> MappedDict::ordered_rows() const {
  DictWalk walk(handle_->newest(), [&](const DictKeys& keys) { return handle_->find_many(keys); });
  std::vector<std::int64_t> rows;
  for (auto block = walk.next(); !block.rows.empty(); block = walk.next()) {
    rows.insert(rows.end(), block.rows.begin(), block.rows.end());
  }
  return rows;
}

bool MappedDict::is_dense() const { return handle_->newest()->num_dead == 0; }

void MappedDict::assign(const DictKeys& keys, const Batch& values) {
  handle_->write(keys, values, DictHandle::Write::assign);
}

void MappedDict::extend(const DictKeys& keys, const Batch& values, DuplicateKeys duplicates) {
  handle_->write(
      keys, values,
      duplicates == DuplicateKeys::error ? DictHandle::Write::extend : DictHandle::Write::put);
}

void MappedDict::flush() { handle_->flush(); }

void MappedDict::close() { handle_->close(); }

void MappedDict::refresh() { handle_->refresh(); }

std::vector<Problem> MappedDict::check() const { return check_dict(*handle_->state()); }

}  // namespace tenfold
