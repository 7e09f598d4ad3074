/* model_text.h - the descriptions of the models that can be trained, written in the language of model_spec.h. */
#ifndef GW_NN_MODEL_TEXT_H
#define GW_NN_MODEL_TEXT_H

#include "nn/model_spec.h"
#include "zoo/zoo.h"

#define GW_MODEL_TEXT_BYTES 65536

/* The description of a model of the zoo, or of a file. text has GW_MODEL_TEXT_BYTES. GW_INVALID: the zoo has no such
 * model, or it cannot be trained. */
gw_status gw_model_text(const char *name, const gw_model_size *size, char *text, gw_error *error);
/* The same, parsed. */
gw_status gw_model_spec(const char *name, const gw_model_size *size, gw_spec **spec, gw_error *error);

#endif
