// Stands in for make_vocabulary.cpp in a build without tokenizers, whose word rules it would use.
#include "orthant/base/error.h"
#include "orthant/data/make_vocabulary.h"

namespace orthant {

MadeVocabulary make_vocabulary(const MakeVocabularyOptions&) {
  throw ConfigError("this build has no tokenizers",
                    {.remedy = "install libpcre2-dev and libutf8proc-dev, then build again"});
}

}  // namespace orthant
