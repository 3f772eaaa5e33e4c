# The table of __init__.py for type checkers and editors; tests/test_public_names.py holds the two together.

from regard import kernels as kernels, look as look, positions as positions
from regard.api.arrays.captioner import Captioner as Captioner
from regard.api.arrays.forecaster import Forecaster as Forecaster
from regard.api.arrays.image_classifier import ImageClassifier as ImageClassifier
from regard.api.arrays.transcriber import Transcriber as Transcriber
from regard.api.classifier import Classifier as Classifier
from regard.api.copying.answerer import Answerer as Answerer
from regard.api.copying.summarizer import Summarizer as Summarizer
from regard.api.embedder import Embedder as Embedder
from regard.api.translator import Translator as Translator
from regard.api.word_vectors import WordVectors as WordVectors
from regard.api.writer import Writer as Writer
from regard.attention import masks as masks
from regard.attention.cache import KVCache as KVCache, StaticCache as StaticCache
from regard.attention.dispatch import attend as attend
from regard.attention.linear.features import RandomFeatures as RandomFeatures
from regard.attention.linear.layer import RandomFeatureAttention as RandomFeatureAttention
from regard.attention.linear.mixed import MixedAttention as MixedAttention
from regard.attention.multihead import MultiHeadAttention as MultiHeadAttention
from regard.attention.recording.recorder import record as record
from regard.attention.scores import (
    AdditiveScore as AdditiveScore,
    BilinearScore as BilinearScore,
    ConcatScore as ConcatScore,
    DotScore as DotScore,
    FourierScore as FourierScore,
    register_score as register_score,
)
from regard.attention.single_head import ContentAttention as ContentAttention, KeyValueAttention as KeyValueAttention
from regard.decoding.searches.beam import Beam as Beam
from regard.decoding.searches.greedy import Greedy as Greedy
from regard.decoding.searches.minimum_risk import MinimumRisk as MinimumRisk
from regard.decoding.searches.sample import Sample as Sample
from regard.decoding.searches.speculative import Speculative as Speculative
from regard.demo.corpus import demo_pairs as demo_pairs
from regard.demo.stories import demo_stories as demo_stories
from regard.interop.exports.exporting import export_model as export_model
from regard.interop.importing import import_model as import_model
from regard.kernels.linear.attend import attend_features as attend_features
from regard.layers.block import Block as Block
from regard.layers.cells import GRUCell as GRUCell, LSTMCell as LSTMCell, RNNCell as RNNCell
from regard.layers.copying import CopyGate as CopyGate
from regard.layers.embedding import Embedding as Embedding
from regard.layers.feedforward import FeedForward as FeedForward
from regard.layers.normalization import LayerNorm as LayerNorm, RMSNorm as RMSNorm
from regard.layers.recurrent import GRU as GRU, LSTM as LSTM, RNN as RNN
from regard.layers.word_vectors import fill_from_vectors as fill_from_vectors, read_vectors as read_vectors
from regard.look.trace.other_libraries import trace as trace
from regard.models.arrays.captioner import TransformerCaptioner as TransformerCaptioner
from regard.models.arrays.dlinear import DLinear as DLinear
from regard.models.arrays.patch_forecaster import PatchForecaster as PatchForecaster
from regard.models.arrays.recurrent_captioner import RecurrentCaptioner as RecurrentCaptioner
from regard.models.arrays.speech_recognizers import (
    ListenAttendSpell as ListenAttendSpell,
    SpeechCTC as SpeechCTC,
    SpeechTransformer as SpeechTransformer,
)
from regard.models.arrays.vision_transformer import VisionTransformer as VisionTransformer
from regard.models.config import (
    AnswererConfig as AnswererConfig,
    CaptionerConfig as CaptionerConfig,
    ClassifierConfig as ClassifierConfig,
    EncoderConfig as EncoderConfig,
    ForecasterConfig as ForecasterConfig,
    ImageClassifierConfig as ImageClassifierConfig,
    LinearForecasterConfig as LinearForecasterConfig,
    ListenAttendSpellConfig as ListenAttendSpellConfig,
    RecurrentCaptionerConfig as RecurrentCaptionerConfig,
    RecurrentLMConfig as RecurrentLMConfig,
    RecurrentTranslatorConfig as RecurrentTranslatorConfig,
    SpeechCTCConfig as SpeechCTCConfig,
    SpeechRecognizerConfig as SpeechRecognizerConfig,
    SummarizerConfig as SummarizerConfig,
    TransformerConfig as TransformerConfig,
    TransformerLMConfig as TransformerLMConfig,
)
from regard.models.encoders.sentence_encoder import SentenceEncoder as SentenceEncoder
from regard.models.encoders.text_classifier import TextClassifier as TextClassifier
from regard.models.folder import load_model as load_model, save_model as save_model
from regard.models.language_model import RecurrentLM as RecurrentLM, TransformerLM as TransformerLM
from regard.models.pointer_generator import PointerGenerator as PointerGenerator
from regard.models.presets import make_model as make_model, preset as preset
from regard.models.recurrent.translator import RecurrentTranslator as RecurrentTranslator
from regard.models.torch_weights import from_torch as from_torch
from regard.models.transformer import Transformer as Transformer
from regard.positions import register_position as register_position
from regard.tasks.loading import load as load
from regard.text.tokenizers.characters import CharacterTokenizer as CharacterTokenizer
from regard.text.tokenizers.subwords import SubwordTokenizer as SubwordTokenizer
from regard.training.run.training_run import train as train
from regard.version import __version__ as __version__
