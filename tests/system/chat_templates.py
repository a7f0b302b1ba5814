"""Chat templates in the styles that public models use, and conversations to print with them.

Each template is written for this file; what it borrows from its family are the marks around a message and the constructs of
the template language.
"""

LLAMA2 = r"""{% if messages[0]['role'] == 'system' %}{% set talk = messages[1:] %}{% set guide = messages[0]['content'] %}{% else %}{% set talk = messages %}{% set guide = false %}{% endif %}
{% for m in talk %}
{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Turns of user and assistant must alternate: turn ' ~ loop.index) }}{% endif %}
{% if loop.index0 == 0 and guide != false %}{% set text = '<<SYS>>\n' + guide + '\n<</SYS>>\n\n' + m['content'] %}{% else %}{% set text = m['content'] %}{% endif %}
{% if m['role'] == 'user' %}{{ bos_token + '[INST] ' + text.strip() + ' [/INST]' }}{% elif m['role'] == 'assistant' %}{{ ' ' + text.strip() + ' ' + eos_token }}{% endif %}
{% endfor %}"""

LLAMA31 = r"""{{- bos_token }}
{%- if custom_tools is defined %}{%- set tools = custom_tools %}{%- endif %}
{%- if not tools_in_user_message is defined %}{%- set tools_in_user_message = true %}{%- endif %}
{%- if not date_string is defined %}{%- set date_string = "26 Jul 2024" %}{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}

{#- The first message may be of the system. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}

{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if builtin_tools is defined or tools is not none %}
    {{- "Environment: ipython\n" }}
{%- endif %}
{%- if builtin_tools is defined %}
    {{- "Tools: " + builtin_tools | reject('equalto', 'code_interpreter') | join(", ") + "\n\n"}}
{%- endif %}
{{- "Knowledge ends: December 2023\nToday: " + date_string + "\n\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {{- "These functions can be called:\n\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}

{%- if tools_in_user_message and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content']|trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("Tools need a first user message, and there is none") }}
    {%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\n\n' -}}
    {{- "Call one of these functions, as {\"name\": ..., \"parameters\": ...}.\n\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
    {{- first_user_message + "<|eot_id|>"}}
{%- endif %}

{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("Only one call at once") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\n\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
"""

LLAMA3 = r"""{% set marks = {'open': '<|start_header_id|>', 'close': '<|end_header_id|>'} %}
{% for message in messages %}{% set content = marks.open + message['role'] + marks['close'] + '\n\n' + message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"""

MISTRAL_V1 = r"""{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token }}{% else %}{{ raise_exception('Only user and assistant speak here, not ' + message['role']) }}{% endif %}{% endfor %}"""

MISTRAL_V3 = r"""{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}

{#- Plain turns alternate; calls and their results stand between them. #}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the system come user and assistant in turns") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}

{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- else %}
                    {{- "]" }}
                {%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
            {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\n\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length != 9 %}
                {{- raise_exception("Ids of calls have 9 characters") }}
            {%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}
                {{- ", " }}
            {%- else %}
                {{- "]" + eos_token }}
            {%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool_results" or message["role"] == "tool" %}
        {%- if message.content is defined and message.content.content is defined %}
            {%- set content = message.content.content %}
        {%- else %}
            {%- set content = message.content %}
        {%- endif %}
        {{- '[TOOL_RESULTS] {"content": ' + content|string + ", " }}
        {{- '"call_id": "' + message.tool_call_id|default('none') + '"}[/TOOL_RESULTS]' }}
    {%- else %}
        {{- raise_exception("An unknown role: " ~ message.role) }}
    {%- endif %}
{%- endfor %}
"""

CHATML = r"""{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

CHATML_DEFAULT_SYSTEM = r"""{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}
{% for message in messages %}
{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou answer briefly.<|im_end|>\n' }}{% endif %}
{{ '<|im_start|>' + message['role'] + '\n' + message['content'] }}{% if (loop.last and add_generation_prompt) or not loop.last %}{{ '<|im_end|>' + '\n' }}{% endif %}

{% endfor %}
{% if add_generation_prompt and messages[-1]['role'] != 'assistant' %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

QWEN25 = r"""{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You help whoever asks.' }}
    {%- endif %}
    {{- "\n\n# Tools\n\nThese functions may be called:\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools>\n\nA call is written so:\n<tool_call>\n{\"name\": <name>, \"arguments\": <object>}\n</tool_call><|im_end|>\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>system\nYou help whoever asks.<|im_end|>\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\n<tool_call>\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' }}
        {{- message.content }}
        {{- '\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""

QWEN3 = r"""{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\n\n' }}
    {%- endif %}
    {{- "# Tools\n<tools>" }}
    {%- for tool in tools %}{{- "\n" ~ (tool | tojson) }}{%- endfor %}
    {{- "\n</tools><|im_end|>\n" }}
{%- else %}
    {%- if messages[0].role == 'system' %}
        {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
    {%- endif %}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\n<think>\n' + reasoning_content.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
            {%- else %}
                {{- '<|im_start|>' + message.role + '\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}
                    {{- '\n' }}
                {%- endif %}
                {%- if tool_call.function %}
                    {%- set tool_call = tool_call.function %}
                {%- endif %}
                {{- '<tool_call>\n{"name": "' ~ tool_call.name ~ '", "arguments": ' }}
                {%- if tool_call.arguments is string %}
                    {{- tool_call.arguments }}
                {%- else %}
                    {{- tool_call.arguments | tojson }}
                {%- endif %}
                {{- '}\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' ~ content ~ '\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}"""

DEEPSEEK = r"""{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system_prompt='') %}{%- for message in messages %}{%- if message['role'] == 'system' %}{% set ns.system_prompt = message['content'] %}{%- endif %}{%- endfor %}{{bos_token}}{{ns.system_prompt}}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{'<｜User｜>' + message['content']}}{%- endif %}{%- if message['role'] == 'assistant' and message['content'] is none %}{%- set ns.is_tool = false -%}{%- for tool in message['tool_calls']%}{%- if not ns.is_first %}{{'<｜Assistant｜><｜calls｜><｜call｜>' + tool['type'] + '<｜sep｜>' + tool['function']['name'] + '\n' + '```json' + '\n' + (tool['function']['arguments']|tojson) + '\n' + '```' + '<｜end call｜>'}}{%- set ns.is_first = true -%}{%- else %}{{'\n' + '<｜call｜>' + tool['type'] + '<｜sep｜>' + tool['function']['name'] + '<｜end call｜>'}}{{'<｜end calls｜><｜end｜>'}}{%- endif %}{%- endfor %}{%- endif %}{%- if message['role'] == 'assistant' and message['content'] is not none %}{%- if ns.is_tool %}{{'<｜end outputs｜>' + message['content'] + '<｜end｜>'}}{%- set ns.is_tool = false -%}{%- else %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{'<｜Assistant｜>' + content + '<｜end｜>'}}{%- endif %}{%- endif %}{%- if message['role'] == 'tool' %}{%- set ns.is_tool = true -%}{%- if ns.is_output_first %}{{'<｜outputs｜><｜output｜>' + message['content'] + '<｜end output｜>'}}{%- set ns.is_output_first = false %}{%- else %}{{'\n<｜output｜>' + message['content'] + '<｜end output｜>'}}{%- endif %}{%- endif %}{%- endfor -%}{% if ns.is_tool %}{{'<｜end outputs｜>'}}{% endif %}{% if add_generation_prompt and not ns.is_tool %}{{'<｜Assistant｜><think>\n'}}{% endif %}"""

DEEPSEEK_CODER = r"""{%- set found_item = false -%}
{%- for message in messages -%}
    {%- if message['role'] == 'system' -%}
        {%- set found_item = true -%}
    {%- endif -%}
{%- endfor -%}
{%- if not found_item -%}
{{'You write programs.\n'}}
{%- endif %}
{%- for message in messages %}
    {%- if message['role'] == 'system' %}
{{ message['content'] }}
    {%- else %}
        {%- if message['role'] == 'user' %}
{{'### Instruction:\n' + message['content'] + '\n'}}
        {%- else %}
{{'### Response:\n' + message['content'] + '\n<|EOT|>\n'}}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{% if add_generation_prompt %}
{{- '### Response:' }}
{% endif %}"""

PHI3 = r"""{% for message in messages %}{% if message['role'] == 'system' and message['content'] %}{{'<|system|>
' + message['content'] + '<|end|>
'}}{% elif message['role'] == 'user' %}{{'<|user|>
' + message['content'] + '<|end|>
'}}{% elif message['role'] == 'assistant' %}{{'<|assistant|>
' + message['content'] + '<|end|>
'}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>
' }}{% else %}{{ eos_token }}{% endif %}"""

PHI4 = r"""{% for message in messages %}{% if (message['role'] == 'system') %}{{'<|im_start|>system<|im_sep|>' + message['content'] + '<|im_end|>'}}{% elif (message['role'] == 'user') %}{{'<|im_start|>user<|im_sep|>' + message['content'] + '<|im_end|>'}}{% elif (message['role'] == 'assistant') %}{{'<|im_start|>assistant<|im_sep|>'}}{% generation %}{{message['content'] + '<|im_end|>'}}{% endgeneration %}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}"""

GEMMA = r"""{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('Nobody speaks for the system here') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('User and assistant speak in turns') }}{% endif %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '
' + message['content'] | trim + '<end_of_turn>
' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model
'}}{% endif %}"""

GEMMA3 = r"""{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '\n\n' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Speak in turns") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<start_of_image>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Neither text nor parts") }}
    {%- endif -%}
    {{ '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ '<start_of_turn>model\n' }}
{%- endif -%}
"""

ZEPHYR = """{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'system' %}\n{{ '<|system|>\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n{% endif %}\n{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}"""

COMMAND_R = r"""{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% elif false == true %}{% set loop_messages = messages %}{% set system_message = 'A guide.' %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% if system_message != false %}{{ '<|START|><|SYSTEM|>' + system_message + '<|END|>' }}{% endif %}{% for message in loop_messages %}{% set content = message['content'] %}{% if message['role'] == 'user' %}{{ '<|START|><|USER|>' + content.strip() + '<|END|>' }}{% elif message['role'] == 'assistant' %}{{ '<|START|><|BOT|>'  + content.strip() + '<|END|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|START|><|BOT|>' }}{% endif %}"""

COMMAND_R_TOOLS = r"""{%- macro python_type(spec) %}
    {%- set types = {"string": "str", "number": "float", "integer": "int", "boolean": "bool"} %}
    {%- if spec.type in types %}
        {{- types[spec.type] }}
    {%- elif spec.type == "array" %}
        {{- "List[" ~ python_type(spec['items']) ~ "]" }}
    {%- elif spec.type == "object" %}
        {{- "Dict" }}
    {%- elif spec.type is iterable and spec.type is not string %}
        {{- "Union[" }}
        {%- for one in spec.type %}{{ python_type({"type": one}) }}{% if not loop.last %}{{ "," }}{% endif %}{%- endfor %}
        {{- "]" }}
    {%- else %}
        {{- "Any" }}
    {%- endif %}
{%- endmacro %}
{%- macro tool_text(tool, deep=1) %}
    {{- "def " + tool.name + "(" }}
    {%- for name, spec in tool.parameters.properties|items -%}
        {%- if loop.index0 != 0 %}{{ ", "}}{%- endif %}
        {{- name ~ ": " }}
        {%- if name not in tool.parameters.required %}{{- "Optional[" + python_type(spec) + "] = None" }}{%- else %}{{- python_type(spec) }}{%- endif %}
    {%- endfor %}
    {{- ") -> List[Dict]:\n" ~ ('    ' * deep) ~ '"""' ~ tool.description ~ '"""\n' -}}
{%- endmacro %}
{{- bos_token }}{{ '## Tools\n' }}
{%- for tool in tools or [] %}
{{ tool_text(tool['function'], deep=2) }}
{%- endfor %}
{%- for message in messages -%}
<|{{ message.role | upper }}|>{{ message.content if message.content is string else message.content | tojson }}
{%- if message.tool_calls %}{{ '\nAction: ' ~ message.tool_calls | map(attribute='function') | list | tojson(indent=2) }}{% endif -%}
<|END|>
{%- endfor %}
{%- if add_generation_prompt %}<|CHATBOT|>{% endif -%}"""

FALCON = r"""{% for message in messages %}{% if not loop.first %}{{ '\n' }}{% endif %}{% if message['role'] == 'system' %}{{ message['content'] }}{% elif message['role'] == 'user' %}{{ 'User: ' + message['content'].replace('\r\n', '\n').replace('\n\n', '\n') }}{% elif message['role'] == 'assistant' %}{{ 'Falcon: ' + message['content'] }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '\n' + 'Falcon:' }}{% endif %}"""

VICUNA = r"""{% set sep = ' ' %}{% if messages[0].role == 'system' %}{{ messages[0].content.strip() + '\n\n' }}{% endif %}{% for m in messages if m.role != 'system' %}{{ m.role.upper() + ': ' + m.content.strip() }}{{ sep if m.role == 'user' else eos_token }}{% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}"""

ALPACA = """{% for message in messages %}
{%   if message.role == 'system' %}
{{ message.content }}

{%   elif message.role == 'user' %}
### Instruction:
{{ message.content }}

{%   else %}
### Response:
{{ message.content }}{{ eos_token }}

{%   endif %}
{% endfor %}
{% if add_generation_prompt %}
### Response:
{% endif %}
"""

OPENCHAT = r"""{{ bos_token }}{% for message in messages %}{{ 'GPT4 Correct ' + message['role'].title() + ': ' + message['content'] + '<|end_of_turn|>'}}{% endfor %}{% if add_generation_prompt %}{{ 'GPT4 Correct Assistant:' }}{% endif %}"""

GRANITE = r"""{%- if not thinking is defined %}{%- set thinking = false %}{%- endif %}
{%- if tools %}{%- set system_message = 'You know these tools.' %}{%- elif documents %}{%- set system_message = 'You read ' ~ documents|length ~ ' documents.' %}{%- else %}{%- set system_message = 'You are a model' ~ ('' if not thinking else ' that thinks') ~ '.' %}{%- endif %}
{%- if messages and messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content'] %}{%- set loop_messages = messages[1:] %}{%- else %}{%- set loop_messages = messages %}{%- endif %}
{{- '<|start_of_role|>system<|end_of_role|>' + system_message + '<|end_of_text|>\n' }}
{%- if tools %}
  {{- '<|start_of_role|>tools<|end_of_role|>' }}
  {{- tools | tojson(indent=4) }}
  {{- '<|end_of_text|>\n' }}
{%- endif %}
{%- if documents %}
  {%- for document in documents %}
    {{- '<|start_of_role|>document ' ~ loop.index ~ '<|end_of_role|>\n' ~ document['text'] ~ '<|end_of_text|>\n' }}
  {%- endfor %}
{%- endif %}
{%- for message in loop_messages %}
  {{- '<|start_of_role|>' + message['role'] + '<|end_of_role|>' + (message['content'] or '') + '<|end_of_text|>\n' }}
  {%- if loop.last and add_generation_prompt %}
    {{- '<|start_of_role|>assistant' }}
    {%- if controls %}{{- ' ' + controls | tojson() }}{%- endif %}
    {{- '<|end_of_role|>' }}
  {%- endif %}
{%- endfor %}"""

SMOLLM3 = r"""{#- Settings first -#}
{%- set mode = "/think" if (enable_thinking is undefined or enable_thinking) else "/no_think" -%}
{%- set custom = messages[0].content.replace("/no_think", "").replace("/think", "").rstrip() if messages[0].role == "system" else "" -%}
{{- "<|im_start|>system\n" -}}
## Meta
Today: {{ today | default("unknown", true) }}
Mode: {{ mode }}

{% if custom -%}
    {{- custom + "\n\n" -}}
{%- endif -%}
{%- if tools -%}
### Tools
{% for tool in tools %}
- {{ tool.function.name | string }}: {{ tool.function.description | default("no text") | capitalize }}
{% endfor %}
{%- endif -%}
{{- "<|im_end|>\n" -}}
{%- for message in messages -%}
    {%- set content = message.content if message.content is string else "" -%}
    {%- if message.role == "user" -%}
        {{ "<|im_start|>" + message.role + "\n" + content + "<|im_end|>\n" }}
    {%- elif message.role == "assistant" -%}
        {%- generation -%}
        {%- if mode == "/think" -%}
            {{ "<|im_start|>assistant\n" + content.lstrip("\n") + "<|im_end|>\n" }}
        {%- else -%}
            {{ "<|im_start|>assistant\n" + "<think>\n\n</think>\n" + content.lstrip("\n") + "<|im_end|>\n" }}
        {%- endif -%}
        {%- endgeneration -%}
    {%- elif message.role == "tool" -%}
    {{ "<|im_start|>" + "user\n"  + content + "<|im_end|>\n" }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ "<|im_start|>assistant\n" ~ ("" if mode == "/think" else "<think>\n\n</think>\n") }}
{%- endif -%}"""

GPT_OSS = r"""{%- macro render_type(spec, required, nullable=false) -%}
    {%- if spec.type == "array" -%}
        {%- if spec['items'] -%}
            {{- render_type(spec['items'], required) + "[]" }}
        {%- else -%}
            {{- "any[]" }}
        {%- endif -%}
    {%- elif spec.type is defined and spec.type is iterable and spec.type is not string and spec.type is not mapping and spec.type[0] is defined -%}
        {{- spec.type | join(" | ") }}
    {%- elif spec.type == "string" -%}
        {%- if spec.enum -%}
            {{- '"' + spec.enum|join('" | "') + '"' -}}
        {%- else -%}
            {{- "string" }}
        {%- endif -%}
    {%- elif spec.type == "object" -%}
        {%- if spec.properties -%}
            {{- "{\n" }}
            {%- for name, inner in spec.properties.items() -%}
                {{- name -}}
                {%- if name not in (spec.required or []) -%}{{- "?" -}}{%- endif -%}
                {{- ": " -}}{{ render_type(inner, spec.required or []) }}
                {%- if not loop.last -%}{{- ", " -}}{%- endif -%}
            {%- endfor -%}
            {{- "\n}" }}
        {%- else -%}
            {{- "object" }}
        {%- endif -%}
    {%- elif spec.type in ["number", "integer"] -%}
        {{- "number" }}
    {%- else -%}
        {{- "any" }}
    {%- endif -%}
    {{- " | null" if nullable }}
{%- endmacro -%}
{%- macro render_tools(tools) -%}
    {{- "namespace functions {\n\n" }}
    {%- for tool in tools %}
        {%- set tool = tool.function %}
        {{- "// " + tool.description + "\n" }}
        {{- "type "+ tool.name + " = " }}
        {%- if tool.parameters and tool.parameters.properties %}
            {{- "(_: {\n" }}
            {%- for name, spec in tool.parameters.properties.items() %}
                {%- if spec.description %}
                    {{- "// " + spec.description + "\n" }}
                {%- endif %}
                {{- name + ("" if name in (tool.parameters.required or []) else "?") + ": " + render_type(spec, []) }}
                {%- if spec.default is defined -%}
                    {{- ", // default: " + (spec.default|string if spec.default is not string else '"' + spec.default + '"') }}
                {%- endif -%}
                {{- ",\n" }}
            {%- endfor %}
            {{- "}) => any;\n\n" }}
        {%- else -%}
            {{- "() => any;\n\n" }}
        {%- endif -%}
    {%- endfor %}
    {{- "} // namespace functions" }}
{%- endmacro -%}
{%- set effort = reasoning_effort | default("medium") %}
{{- "<|start|>system<|message|>Reasoning: " + effort + "<|end|>" }}
{%- set has_developer = messages | length > 0 and messages[0].role in ["developer", "system"] %}
{%- if has_developer or tools %}
    {{- "<|start|>developer<|message|>" }}
    {%- if has_developer %}{{- "# Instructions\n\n" ~ messages[0].content ~ "\n\n" }}{%- endif %}
    {%- if tools -%}{{- render_tools(tools) }}{%- endif %}
    {{- "<|end|>" }}
{%- endif %}
{%- set last_tool_call = namespace(name=none) %}
{%- for message in (messages[1:] if has_developer else messages) -%}
    {%- if message.role == 'assistant' -%}
        {%- if "tool_calls" in message %}
            {%- set call = message.tool_calls[0] %}
            {%- if call.function %}{%- set call = call.function %}{%- endif %}
            {{- "<|start|>assistant to=functions." + call.name + "<|message|>" + call.arguments|tojson + "<|call|>" }}
            {%- set last_tool_call.name = call.name %}
        {%- elif loop.last and not add_generation_prompt %}
            {{- "<|start|>assistant<|channel|>final<|message|>" + message.content + "<|return|>" }}
        {%- else %}
            {{- "<|start|>assistant<|channel|>final<|message|>" + message.content + "<|end|>" }}
            {%- set last_tool_call.name = none %}
        {%- endif %}
    {%- elif message.role == 'tool' -%}
        {%- if last_tool_call.name is none %}
            {{- raise_exception("A result without a call") }}
        {%- endif %}
        {{- "<|start|>functions." + last_tool_call.name + " to=assistant<|message|>" + message.content|tojson + "<|end|>" }}
    {%- elif message.role == 'user' -%}
        {{- "<|start|>user<|message|>" + message.content + "<|end|>" }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|start|>assistant
{%- endif -%}"""

INTERNLM = r"""{{ bos_token }}{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] | trim | default('', true) + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

YI = r"""{% set system_message = 'Be kind.' %}{% if messages[0]['role'] == 'system' %}{% set system_message = messages[0]['content'] %}{% endif %}{% if system_message is defined %}{{ system_message }}{% endif %}{% for message in messages %}{% set content = message['content'] %}{% if message['role'] == 'user' %}{{ '<|im_start|>user\n' + content + '<|im_end|>\n<|im_start|>assistant\n' }}{% elif message['role'] == 'assistant' %}{{ content + '<|im_end|>' + '\n' }}{% endif %}{% endfor %}"""

OLMO = r"""{{ bos_token }}
{%- for message in messages -%}
{%- if message['role'] == 'system' -%}{{ '<|system|>\n' + message['content'] + '\n' }}
{%- elif message['role'] == 'user' -%}{{ '<|user|>\n' + message['content'] + '\n' }}
{%- elif message['role'] == 'assistant' -%}
{%- if not loop.last -%}{{ '<|assistant|>\n' + message['content'] + eos_token + '\n' }}
{%- else -%}{{ '<|assistant|>\n' + message['content'] + eos_token }}{%- endif -%}
{%- endif -%}
{%- if loop.last and add_generation_prompt -%}{{ '<|assistant|>\n' }}{%- endif -%}
{%- endfor -%}"""

HERMES = r"""{%- macro type_of(spec) %}
{%- set basic = {"string": "str", "number": "float", "integer": "int", "boolean": "bool"} %}
{%- if basic[spec.type] is defined %}
    {{- basic[spec.type] }}
{%- elif spec.type == "array" %}
    {{- "list[" + type_of(spec.get('items', {})) + "]" }}
{%- elif spec.type == "object" %}
    {%- if spec.additionalProperties is defined %}
        {{- "dict[str, " + type_of(spec.additionalProperties) + ']' }}
    {%- else %}
        {{- "dict" }}
    {%- endif %}
{%- else %}
    {{- "Any" }}
{%- endif %}
{%- endmacro %}
{{- bos_token }}
{{- "<|im_start|>system\nTools: <tools> " }}
{%- for tool in tools or () %}
    {%- if tool.function is defined %}{%- set tool = tool.function %}{%- endif %}
    {{- '{"type": "function", "function": ' ~ '{"name": ' ~ (tool.name | tojson) ~ ', "description": "' ~ tool.name ~ '(' }}
    {%- for name, spec in tool.parameters.properties|items %}
        {{- name + ": " + type_of(spec) }}
        {%- if not loop.last %}{{- ", " }}{%- endif %}
    {%- endfor %}
    {{- ") - " ~ tool.description | replace('"', "'") ~ "\n\nArgs:\n" }}
    {%- for name, spec in tool.parameters.properties | dictsort %}
        {{- "    " + name + "(" + type_of(spec) + "): " + spec.description|default('')|trim }}
        {%- if loop.revindex0 > 0 %}{{- "\n" }}{%- endif %}
    {%- endfor %}
    {{- '", "parameters": ' ~ (tool.parameters | tojson(sort_keys=True)) }}
    {%- if loop.length > 1 and not loop.last %}{{- "}\n" }}{%- else %}{{- "}" }}{%- endif %}
{%- endfor %}
{{- " </tools><|im_end|>\n" }}
{%- for message in messages %}
    {%- if message.role in ("user", "system") or (message.role == "assistant" and message.tool_calls is not defined) %}
        {{- '<|im_start|>' + message.role + '\n' + (message.content or '') + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- for call in message.tool_calls %}
            {{- '\n<tool_call>\n' ~ {"name": call.function.name, "arguments": call.function.arguments} | tojson ~ '\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if not message.name is defined %}{%- set name = 'function' %}{%- else %}{%- set name = message.name %}{%- endif %}
        {%- if loop.previtem and loop.previtem.role != "tool" %}{{- '<|im_start|>tool\n' }}{%- endif %}
        {{- '<tool_response>\n' ~ name ~ ': ' ~ message.content ~ '\n</tool_response>' }}
        {%- if not loop.last and loop.nextitem.role == "tool" %}{{- '\n' }}{%- else %}{{- '<|im_end|>\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"""

GLM4 = r"""[gMASK]<sop>{%- if tools -%}<|system|>
# Tools

{% for tool in tools %}
{{ tool | tojson(ensure_ascii=False) }}
{% endfor %}
{%- endif -%}
{%- for m in messages -%}
{%- if m.role == 'user' -%}<|user|>
{{ m.content }}
{%- elif m.role == 'assistant' -%}<|assistant|>
{%- set parts = (m.content or '').split('</think>', 1) -%}
{{ '\n' + parts[-1].strip() }}
{%- for call in m.tool_calls or [] %}
{{ '\n<tool_call>' + call.function.name }}
{% for k, v in call.function.arguments.items() %}
<arg_key>{{ k }}</arg_key>
<arg_value>{{ v | tojson(ensure_ascii=True) if v is not string else v }}</arg_value>
{% endfor %}
</tool_call>{% endfor %}
{%- elif m.role == 'tool' -%}
{%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{ '<|observation|>' }}{% endif %}
{{ '\n<tool_response>\n' ~ m.content ~ '\n</tool_response>' }}
{%- elif m.role == 'system' -%}<|system|>
{{ m.content }}
{%- endif -%}
{%- endfor -%}
{{- '<|assistant|>' + ('\n<think></think>' if (enable_thinking is defined and not enable_thinking) else '') if add_generation_prompt -}}"""

STABLELM = r"""{% for message in messages %}{{ '<|' ~ message.role ~ '|>\n' ~ message.content | trim ~ eos_token ~ '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"""

LABELS = r"""{% raw %}{{ kept as it is }}{% endraw %}
{%+ if messages %}
  {% for m in messages -%}
  {% if m.content is none or m.content == '' %}{% continue %}{% endif %}
  {% if loop.index > 6 %}{% break %}{% endif %}
  [{{ loop.index }}/{{ loop.length }}{{ loop.cycle(' odd', ' even') }}{% if loop.changed(m.role) %} new{% endif %}] {{ m.role | title }}: {{ m.content if m.content is string else m.content | map(attribute='text') | select | join(' ') }}
  {% else %}
  nobody
  {% endfor +%}
{% endif %}
{% set note %}
{{ messages | map(attribute='role') | unique | sort | join(', ') }}{% endset %}
roles: {{ note | trim }}; {{ messages | length }} / 3 = {{ messages | length / 3 }}, {{ messages | length // 3 }}, {{ messages | length % 3 }}, {{ 2 ** 5 }}, {{ -7 // 2 }}, {{ -7 % 3 }}, {{ 7.5 % 2 }}, {{ 1e3 }}, {{ 1 / 3 }}
{{ [1, 'a', none, true, 2.0, ('x',), {'k': 'it\'s'}] }} {{ 'abcdef'[1:4] }} {{ 'abcdef'[::-1] }} {{ 'abc'[-1] }} {{ range(0, 10, 3) | list }} {{ 3 in [1, 2, 3] and 'b' not in 'abc' or 'neither' }}
{{ "%s" if false else "a" "b" }} {{ 'x' * 3 ~ 1 ~ none }} {{ [3, 1, 2] | sort(reverse=true) | first }} {{ {'b': 1, 'a': 2} | dictsort }} {{ messages | rejectattr('role', 'in', ['user', 'system']) | list | length }}
{{ ' a  b c '.split() }} {{ 'a,b,,c'.split(',') }} {{ 'a,b,c'.rsplit(',', 1) }} {{ 'One two'.lower() | upper | replace('O', '0') }} {{ 'x\ny' | indent(2, first=true) }} {{ 5 is odd }} {{ 6 is divisibleby 3 }} {{ '12' | int + 1 }} {{ 2.5 | round | int }} {{ missing | default('none given') }} {{ 1 < 2 <= 2 != 3 }}
{{ bos_token is defined }} {{ [1, 2, 3, 4] | select('odd') | list }} {{ 'é' ~ '☃'.upper() }} {{ 'prefix-body'.removeprefix('prefix-') }} {{ [[1, 'x'], [2, 'y']] | map('last') | join('') }} {{ not messages }}"""

TEMPLATES = {
    "llama2": LLAMA2, "llama3": LLAMA3, "llama3.1": LLAMA31, "mistral-v1": MISTRAL_V1, "mistral-v3": MISTRAL_V3, "chatml": CHATML,
    "chatml-system": CHATML_DEFAULT_SYSTEM, "qwen2.5": QWEN25, "qwen3": QWEN3, "deepseek": DEEPSEEK, "deepseek-coder": DEEPSEEK_CODER,
    "phi3": PHI3, "phi4": PHI4, "gemma": GEMMA, "gemma3": GEMMA3, "zephyr": ZEPHYR, "command-r": COMMAND_R,
    "command-r-tools": COMMAND_R_TOOLS, "falcon": FALCON, "vicuna": VICUNA, "alpaca": ALPACA, "openchat": OPENCHAT, "granite": GRANITE,
    "smollm3": SMOLLM3, "gpt-oss": GPT_OSS, "internlm": INTERNLM, "yi": YI, "olmo": OLMO, "hermes": HERMES, "glm4": GLM4,
    "stablelm": STABLELM, "labels": LABELS,
}

USER = {"role": "user", "content": "What is 2 + 2?"}
ASSISTANT = {"role": "assistant", "content": "It is 4."}
SYSTEM = {"role": "system", "content": "You are brief.\nYou are kind."}

TOOLS = [
    {"type": "function", "function": {"name": "weather", "description": "Tells the \"weather\" of a place <now>", "parameters": {
        "type": "object", "properties": {
            "place": {"type": "string", "description": "Where: Köln, 東京 & co"},
            "days": {"type": "integer", "default": 3},
            "tags": {"type": "array", "items": {"type": "string"}},
            "unit": {"type": "string", "enum": ["celsius", "kelvin"], "description": "of degrees"},
            "more": {"type": "object", "additionalProperties": {"type": "number"}},
            "any": {"type": ["string", "null"]}},
        "required": ["place"]}}},
    {"type": "function", "function": {"name": "clock", "description": "the time", "parameters": {"type": "object", "properties": {}}}},
]

CALL = {"role": "assistant", "content": None, "tool_calls": [
    {"id": "call00001", "type": "function", "function": {"name": "weather", "arguments": {"place": "Köln", "days": 2, "deep": [1.5, None, True]}}}]}
CALL_WITH_TEXT = {"role": "assistant", "content": "Let me look.", "tool_calls": CALL["tool_calls"]}
RESULT = {"role": "tool", "tool_call_id": "call00001", "name": "weather", "content": "{\"rain\": 0.25, \"text\": \"schön\"}"}


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


CONVERSATIONS = [
    {"messages": [USER]},
    {"messages": [USER], "add_generation_prompt": False},
    {"messages": [SYSTEM, USER]},
    {"messages": [SYSTEM, USER, ASSISTANT], "add_generation_prompt": False},
    {"messages": [USER, ASSISTANT, user("And 3 + 3?")]},
    {"messages": [SYSTEM, USER, ASSISTANT, user("Sure?"), assistant("Yes.\n\n"), user("  spaces around  ")]},
    {"messages": [user("")]},
    {"messages": [user("a"), assistant(""), user("b")]},
    {"messages": [user("Grüße, 世界! 👩‍👩‍👧 \u00a0\u2003 nbsp"), assistant("\u200bzero\u2028line"), user("ünï\ttab")]},
    {"messages": [user("line\nline\r\nline\n\n\n"), assistant("<think>\nhm\n</think>\n\nfour"), user("<|im_end|> [INST] </s> {{ 1 }} {% x %}")]},
    {"messages": [user("it's \"quoted\" \\ back\\nslash"), assistant("<think>open"), user("</think>")], "enable_thinking": False},
    {"messages": [SYSTEM, USER], "enable_thinking": True, "reasoning_effort": "high", "thinking": True, "today": "1 May"},
    {"messages": [USER], "tools": TOOLS},
    {"messages": [SYSTEM, USER], "tools": TOOLS[:1]},
    {"messages": [SYSTEM, USER, CALL, RESULT], "tools": TOOLS},
    {"messages": [USER, CALL_WITH_TEXT, RESULT, assistant("No rain."), user("Thanks")], "tools": TOOLS},
    {"messages": [USER, CALL, RESULT, RESULT], "tools": TOOLS, "add_generation_prompt": False, "tools_in_user_message": False},
    {"messages": [user("Read them.")], "documents": [{"title": "one", "text": "First ünï."}, {"title": "two", "text": "Second."}]},
    {"messages": [USER, {"role": "assistant", "content": "4", "reasoning_content": "two and two"}], "add_generation_prompt": False},
    {"messages": [user([{"type": "text", "text": " part one "}, {"type": "text", "text": "part two"}])]},
    {"messages": [ASSISTANT, USER]},
    {"messages": [{"role": "narrator", "content": "Once"}, USER]},
    {"messages": [user("x" * 3000)] + [assistant("y"), user("z")] * 20},
    {"messages": [user("1"), user("2")], "controls": {"length": "short"}, "builtin_tools": ["search", "code_interpreter"]},
]
