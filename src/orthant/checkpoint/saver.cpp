#include "orthant/checkpoint/saver.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <span>

#include "orthant/base/error.h"
#include "orthant/files/path_facts.h"
#include "orthant/files/whole_file.h"
#include "orthant/launch/activity_board.h"

namespace orthant {
namespace {

// Where training stands, without files and tensors.
Manifest manifest_of(const Checkpointed& training, const SavedBeside& beside) {
  const auto tensors = training.checkpointed();
  const auto progress = training.progress();
  Manifest manifest;
  manifest.step = progress.step;
  manifest.mesh = tensors.mesh.to_string();
  manifest.epoch = beside.cursor.epoch;
  manifest.position = beside.cursor.position;
  manifest.samples_seen = beside.cursor.samples_seen;
  manifest.seed = training.seed();
  manifest.updates = progress.updates;
  manifest.eval_loss = beside.eval_loss;
  manifest.loss_scale = progress.loss_scale;
  manifest.good_steps = progress.good_steps;
  for (const auto& unit : tensors.graph->units) {
    for (const auto& name : unit.borrowed) {
      // "head.weight" for "embed.weight", unless the unit has a weight of its own.
      const auto alias = fmt::format("{}.{}", unit.name, name.substr(name.rfind('.') + 1));
      const bool taken = std::ranges::find(unit.parameters, alias, &ParameterSpec::name) != unit.parameters.end();
      manifest.tied[taken ? fmt::format("{}.{}", unit.name, name) : alias] = name;
    }
  }
  return manifest;
}

// A checkpoint may be replaced by another; what else lies there is somebody's.
void check_replaceable(const std::filesystem::path& folder) {
  if (!is_there(folder) || (is_folder(folder) && names_in_folder(folder).empty())) return;
  if (is_there(folder / kManifestFile)) return;
  throw DataError(fmt::format("{}: exists, is no checkpoint and is not replaced", folder.string()),
                  {.remedy = "name another folder"});
}

// Of every rank: [bytes, hashes..., tags...] of its file, each tag as the 8 words of its digits; nothing where it has
// none.
using WrittenFiles = std::vector<at::Tensor>;

constexpr std::size_t kTagDigits = 64;
constexpr std::size_t kWordsOfTag = kTagDigits / sizeof(std::int64_t);

at::Tensor packed(const WrittenFile& file) {
  std::vector<std::int64_t> facts = {file.bytes};
  facts.insert(facts.end(), file.xxh64.begin(), file.xxh64.end());
  for (const auto& tag : file.hmac) {
    facts.resize(facts.size() + kWordsOfTag);
    std::memcpy(facts.data() + facts.size() - kWordsOfTag, tag.data(), kTagDigits);
  }
  return at::tensor(facts, at::kLong);
}

ManifestFile unpacked(const std::string& name, const at::Tensor& packed) {
  const std::span<const std::int64_t> facts(packed.const_data_ptr<std::int64_t>(),
                                            static_cast<std::size_t>(packed.numel()));
  ManifestFile file{name, facts[0], {}, {}};
  const auto blocks = static_cast<std::size_t>(num_hashed_blocks(file.bytes));
  const auto hashes = facts.subspan(1, blocks);
  file.xxh64 = hash_texts({hashes.begin(), hashes.end()});
  for (auto place = 1 + blocks; place < facts.size(); place += kWordsOfTag) {
    file.hmac.emplace_back(reinterpret_cast<const char*>(facts.data() + place), kTagDigits);
  }
  return file;
}

void add_files(Manifest& manifest, const CheckpointedTensors& tensors, const WrittenFiles& written) {
  std::vector<RankFile> files;
  for (std::size_t rank = 0; rank < written.size(); ++rank) {
    files.push_back(plan_file(tensors, static_cast<int>(rank)));
    if (written[rank].numel() == 0) continue;
    manifest.files.push_back(unpacked(files.back().name, written[rank]));
  }
  add_pieces(manifest, tensors, files);
}

}  // namespace

CheckpointSaver::CheckpointSaver(const Checkpointed& training) : training_(training) {
  const auto tensors = training.checkpointed();
  ranks_ = tensors.ranks;
  file_ = plan_file(tensors, ranks_.rank());
}

CheckpointSaver::CheckpointSaver(Checkpointed& training, bool asynchronous)
    : CheckpointSaver(static_cast<const Checkpointed&>(training)) {
  if (asynchronous) held_ = &training;
}

CheckpointSaver::~CheckpointSaver() {
  if (work_.valid()) work_.wait();
}

void CheckpointSaver::begin(const std::string& folder, SavedBeside beside) {
  if (under_way()) throw InternalError("a checkpoint is saved while another one is under way");
  const PhaseScope saving(ranks_, JobPhase::save);
  const auto step = training_.steps_done();
  launch::Activity::of_process().say(fmt::format("copying for the checkpoint of step {}", step));
  beside_ = std::move(beside);
  stage_ = Stage::parts;
  outcome_ = {.step = step, .failed = nullptr};
  folder_ = folder;
  tried_again_ = false;
  can_repeat_ = held_ == nullptr;
  written_ = at::empty({0}, at::kLong);
  // What one rank alone meets here is told to all when the save goes on.
  std::exception_ptr refused;
  try {
    if (ranks_.is_first()) {
      manifest_ = manifest_of(training_, beside_);
      check_replaceable(folder);
      make_room(/*quota=*/false);
      target_ = std::make_unique<ReplacingFolder>(folder);
    }
  } catch (const std::exception&) {
    refused = std::current_exception();
  }
  open_target();
  try {
    begin_part(refused);
  } catch (const std::exception&) {
    refuse(refused ? refused : std::current_exception());
  }
}

// Tells the other ranks where to write.
void CheckpointSaver::open_target() {
  place_ = ranks_.from_first(target_ ? target_->path().string() : "");
  seal_ = {beside_.key, "", outcome_.step};
  if (seal_.key) seal_.id = ranks_.from_first(ranks_.is_first() ? new_checkpoint_id() : "");
}

// False also where the system does not tell what is there: a first save is tried all the same, a second one is not.
bool CheckpointSaver::make_room(bool quota) {
  if (!beside_.make_room) return false;
  try {
    if (needed_bytes_ == 0) {
      std::vector<RankFile> files;
      const auto tensors = training_.checkpointed();
      for (int rank = 0; rank < ranks_.size(); ++rank) files.push_back(plan_file(tensors, rank));
      needed_bytes_ = bytes_to_save(files, beside_.files);
    }
    const auto room = beside_.make_room(needed_bytes_, quota);
    if (!room.note.empty()) outcome_.room_notes.push_back(room.note);
    return room.enough;
  } catch (const DataError&) {
    return false;
  }
}

// Once more into a disk that was full, when rules make room there. It is the same save: of the moment of begin(), from
// the copy that every rank has made by now.
bool CheckpointSaver::try_again(const std::exception_ptr& failed) {
  int reason = 0;
  try {
    std::rethrow_exception(failed);
  } catch (const IoError& error) {
    reason = error.error_number();
  } catch (const Error&) {
  }
  if (tried_again_ || (reason != ENOSPC && reason != EDQUOT)) return false;
  tried_again_ = true;
  target_.reset();  // what it has written goes
  if (ranks_.any(!can_repeat_)) return false;
  if (!ranks_.any(ranks_.is_first() && make_room(reason == EDQUOT))) return false;
  stage_ = Stage::parts;
  written_ = at::empty({0}, at::kLong);
  std::exception_ptr refused;
  try {
    if (ranks_.is_first()) target_ = std::make_unique<ReplacingFolder>(folder_);
  } catch (const std::exception&) {
    refused = std::current_exception();
  }
  open_target();
  manifest_.files.clear();
  manifest_.tensors.clear();
  if (!place_.empty()) start([this] { write_part(); });
  if (refused) refuse(refused);
  return true;
}

void CheckpointSaver::refuse(const std::exception_ptr& reason) {
  std::promise<void> broken;
  work_ = broken.get_future();
  broken.set_exception(reason);
}

// Without a place to write to the copy is made all the same: the save may be tried again.
void CheckpointSaver::begin_part(const std::exception_ptr& refused) {
  const auto write = [this, refused] {
    if (refused) std::rethrow_exception(refused);
    if (!place_.empty()) write_part();
  };
  if (held_ == nullptr) return start(write);
  const auto flats = saved_flats(training_.checkpointed());
  copy_.begin(flats);
  copied_ = {};
  held_->hold_update(copied_.get_future().share());
  try {
    start([this, flats, write] {
      copy_part(flats);
      write();
    });
  } catch (...) {  // no thread was to be had
    copied_.set_value();
    throw;
  }
}

void CheckpointSaver::copy_part(const std::vector<SavedFlat>& flats) {
  try {
    copy_.take(file_, flats);
    can_repeat_ = true;
  } catch (...) {
    copied_.set_value();
    throw;
  }
  copied_.set_value();
}

void CheckpointSaver::start(std::function<void()> work) {
  work_ = std::async(std::launch::async, std::move(work));
}

void CheckpointSaver::write_part() {
  beside_.fence.check();
  if (file_.parts.empty()) return;
  written_ = packed(held_ != nullptr ? copy_.write(file_, place_, seal_)
                                     : write_rank_file(file_, saved_flats(training_.checkpointed()), place_, seal_));
}

void CheckpointSaver::commit(const WrittenFiles& written) {
  beside_.fence.check();
  add_files(manifest_, training_.checkpointed(), written);
  for (const auto& [name, text] : beside_.files) {
    write_file_atomically(place_ / name, text);
    manifest_.files.push_back(described_text(name, text, seal_));
  }
  write_manifest(place_, manifest_, seal_);
  const auto attempt = [](const std::function<void()>& act, std::string& failed) {
    try {
      if (act) act();
    } catch (const std::exception& error) {
      failed = error.what();
    }
  };
  attempt(beside_.before_commit, outcome_.before_commit_failed);
  beside_.fence.check();
  target_->commit();
  attempt(beside_.afterwards, outcome_.afterwards_failed);
}

bool CheckpointSaver::busy() const {
  return work_.valid() && work_.wait_for(std::chrono::seconds(0)) == std::future_status::timeout;
}

// In short calls, each of which ends: a slow disk is not a lost rank.
void CheckpointSaver::wait_for_all() {
  launch::Activity::of_process().say(fmt::format("saving the checkpoint of step {}", outcome_.step));
  do {
    if (work_.valid()) work_.wait_for(std::chrono::seconds(1));
    if (!busy()) {
      launch::Activity::of_process().say(
          fmt::format("saved its part of the checkpoint of step {}, waiting for other ranks", outcome_.step));
    }
  } while (ranks_.any(busy()));
}

std::exception_ptr CheckpointSaver::failure() {
  wait_for_all();
  try {
    ranks_.together([&] {
      if (work_.valid()) work_.get();
    });
  } catch (const CommError&) {
    throw;
  } catch (const Error&) {
    return std::current_exception();
  } catch (const std::exception& error) {
    return std::make_exception_ptr(
        DataError(fmt::format("the checkpoint of step {}: {}", outcome_.step, error.what())));
  }
  return nullptr;
}

SaveOutcome CheckpointSaver::ended(std::exception_ptr failed) {
  target_.reset();
  stage_ = Stage::none;
  outcome_.failed = std::move(failed);
  return outcome_;
}

std::optional<SaveOutcome> CheckpointSaver::advance() {
  if (!under_way()) return std::nullopt;
  const PhaseScope saving(ranks_, JobPhase::save);
  if (auto failed = failure()) {
    if (try_again(failed)) return std::nullopt;
    return ended(std::move(failed));
  }
  if (stage_ == Stage::commit) return ended(nullptr);
  stage_ = Stage::commit;
  const auto written = ranks_.gather(written_);
  if (target_) start([this, written] { commit(written); });
  return std::nullopt;
}

std::optional<SaveOutcome> CheckpointSaver::finish() {
  std::optional<SaveOutcome> outcome;
  while (under_way()) outcome = advance();
  return outcome;
}

}  // namespace orthant
